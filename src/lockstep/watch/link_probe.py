"""The link between the workers: which interface it is, what it claims to carry, and what it carries when asked.

The rate is that of an all-reduce, counted as the step lines count `bytes_sent`: a step's bytes divided by it are the
least time that its exchange takes. The latency is that of an all-reduce of one number: what any exchange costs at least.
"""

import os
import socket
import statistics
import time

import torch
import torch.distributed as dist

from lockstep.team import Team

LATENCY_ROUNDS, LATENCY_SECONDS = 20, 0.1
FIRST_BYTES, LARGEST_BYTES = 2**14, 2**24
LONG_ENOUGH_SECONDS = 0.025
RATE_ROUNDS, RATE_SECONDS = 3, 0.15


def probe(team: Team) -> tuple[float, float]:
    """Bits per second and latency in seconds. All workers call it together, and all get the same figures: the slowest
    worker's. A payload grows until its travel can be timed, so that neither a slow nor a distant link is held up; the
    best of a few counts, because another program may have disturbed the others."""
    small = torch.zeros(1, device=team.device)
    together(small, team)  # until all are here
    rounds = [together(small, team)]
    while len(rounds) < LATENCY_ROUNDS and sum(rounds) < LATENCY_SECONDS:
        rounds.append(together(small, team))
    latency = statistics.median(rounds)
    size, spent, travels = FIRST_BYTES, 0.0, list[float]()
    while len(travels) < RATE_ROUNDS and spent < RATE_SECONDS:
        if travels and travels[-1] < LONG_ENOUGH_SECONDS and size < LARGEST_BYTES:
            size = min(LARGEST_BYTES, 4 * size, int(size * 2 * LONG_ENOUGH_SECONDS / travels[-1]))
            travels = []
        seconds = together(torch.zeros(size // 4, device=team.device), team)
        spent += seconds
        travels.append(max(seconds - latency, seconds / 10))
    sent = 2 * (team.size - 1) / team.size * size  # by each worker of a ring
    return 8 * sent / min(travels), latency


def together(payload: torch.Tensor, team: Team) -> float:
    """Seconds of an all-reduce, on the worker where it took longest. On CPU it goes by the group for facts, where
    nothing of a strategy is under way."""
    group = team.workers if payload.is_cuda else team.facts
    begin = time.perf_counter()
    dist.all_reduce(payload, group=group)
    if payload.is_cuda:
        torch.cuda.synchronize(payload.device)
    seconds = torch.tensor(time.perf_counter() - begin, dtype=torch.float64, device=payload.device)
    dist.all_reduce(seconds, dist.ReduceOp.MAX, group=group)
    return float(seconds)


def interface(team: Team) -> str | None:
    """The interface that this worker's gradients leave by: the one that torch was told to use, else the one on the way
    to a worker on another host."""
    here, master = socket.gethostname(), os.environ.get("MASTER_ADDR", "")
    facts = team.gather((here, _own_address(master)))
    away = [address for host, address in facts if host != here and address]
    if all(host == here for host, _ in facts):
        return "lo"
    named = os.environ.get("NCCL_SOCKET_IFNAME" if team.device.type == "cuda" else "GLOO_SOCKET_IFNAME", "")
    if named and not named.startswith("^"):
        return named.split(",")[0].removeprefix("=")
    for target in (master, *away):
        address = _own_address(target)
        if address and address not in _addresses(target):  # not this host itself
            return _holder(address)
    return None


def _addresses(target: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)] if target else []
    except OSError:
        return []


def _own_address(target: str) -> str | None:
    """The address that packets to `target` start from; nothing is sent to find out."""
    for address in _addresses(target):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as asking:
                asking.connect((address, 9))
                return str(asking.getsockname()[0])
        except OSError:
            continue
    return None


def _holder(address: str) -> str | None:
    """The interface with this address."""
    import psutil

    try:
        held = psutil.net_if_addrs()
    except OSError:
        return None
    for name, addresses in held.items():
        if any(item.address.partition("%")[0] == address for item in addresses):
            return name
    return None
