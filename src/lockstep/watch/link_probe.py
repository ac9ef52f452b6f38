"""Measures the link between the workers, and finds its network interface.

The rate is that of an all-reduce, counted like `bytes_sent` of the step lines: the bytes of a step divided by the rate are
the minimum time of its exchange. The latency is that of an all-reduce of one number, the minimum cost of any exchange.
"""

import socket
import statistics
import time

import torch
import torch.distributed as dist

from lockstep.run import environment_variables
from lockstep.team import Team

LATENCY_ROUNDS, LATENCY_SECONDS = 20, 0.1
FIRST_BYTES, LARGEST_BYTES = 2**14, 2**24
TIMEABLE_SECONDS = 0.025
RATE_ROUNDS, RATE_SECONDS = 3, 0.15


def probe(team: Team) -> tuple[float, float]:
    """Returns bits per second and latency in seconds. All workers call it together and get the same figures, those of the
    slowest worker. The payload grows until its transfer is long enough to time, so that a slow link is not blocked by a
    large one. The fastest of a few rounds counts, because another program may have disturbed the others."""
    small = torch.zeros(1, device=team.device)
    time_all_reduce(small, team)  # synchronizes the workers
    rounds = [time_all_reduce(small, team)]
    while len(rounds) < LATENCY_ROUNDS and sum(rounds) < LATENCY_SECONDS:
        rounds.append(time_all_reduce(small, team))
    latency = statistics.median(rounds)
    size, spent, transfers = FIRST_BYTES, 0.0, list[float]()
    while len(transfers) < RATE_ROUNDS and spent < RATE_SECONDS:
        if transfers and transfers[-1] < TIMEABLE_SECONDS and size < LARGEST_BYTES:
            size = min(LARGEST_BYTES, 4 * size, int(size * 2 * TIMEABLE_SECONDS / transfers[-1]))
            transfers = []
        seconds = time_all_reduce(torch.zeros(size // 4, device=team.device), team)
        spent += seconds
        transfers.append(max(seconds - latency, seconds / 10))
    sent = 2 * (team.size - 1) / team.size * size  # bytes that each worker of a ring sends
    return 8 * sent / min(transfers), latency


def time_all_reduce(payload: torch.Tensor, team: Team) -> float:
    """Returns the seconds of an all-reduce on the slowest worker. On CPU it uses the group for small facts, in which no
    strategy has a collective in flight."""
    group = team.workers if payload.is_cuda else team.facts
    begin = time.perf_counter()
    dist.all_reduce(payload, group=group)
    if payload.is_cuda:
        torch.cuda.synchronize(payload.device)
    seconds = torch.tensor(time.perf_counter() - begin, dtype=torch.float64, device=payload.device)
    dist.all_reduce(seconds, dist.ReduceOp.MAX, group=group)
    return float(seconds)


def find_interface(team: Team) -> str | None:
    """Returns the network interface over which this worker sends gradients: the one that NCCL_SOCKET_IFNAME or
    GLOO_SOCKET_IFNAME names, else the one on the route to a worker on another host."""
    here, master = socket.gethostname(), (environment_variables.rendezvous() or ("",))[0]
    hosts = team.gather([here, _find_source_address(master)])
    remote_addresses = [address for host, address in hosts if host != here and address]
    if all(host == here for host, _ in hosts):
        return "lo"
    named = environment_variables.socket_interface("nccl" if team.device.type == "cuda" else "gloo")
    if named and not named.startswith("^"):
        return named.split(",")[0].removeprefix("=")
    for target in (master, *remote_addresses):
        address = _find_source_address(target)
        if address and address not in _resolve(target):  # the target is another host
            return _find_interface_of(address)
    return None


def _resolve(target: str) -> list[str]:
    """Returns the addresses of a host, none when its name cannot be resolved."""
    try:
        return [str(info[4][0]) for info in socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)] if target else []
    except OSError:
        return []


def _find_source_address(target: str) -> str | None:
    """Returns the local address from which packets to `target` would be sent. Nothing is sent."""
    for address in _resolve(target):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe_socket:
                probe_socket.connect((address, 9))
                return str(probe_socket.getsockname()[0])
        except OSError:
            continue
    return None


def _find_interface_of(address: str) -> str | None:
    import psutil

    try:
        interfaces = psutil.net_if_addrs()
    except OSError:
        return None
    for name, addresses in interfaces.items():
        if any(item.address.partition("%")[0] == address for item in addresses):
            return name
    return None
