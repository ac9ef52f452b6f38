"""The torchrun command of every host."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.hosts.hosts_file import Host
from lockstep.jobs.job import Job
from lockstep.launch.engine import QUICK_RENDEZVOUS


@dataclass(frozen=True)
class HostCommand:
    """What one host starts."""

    host: Host
    processes: int  # workers, and servers on the last host
    words: tuple[str, ...]
    variables: dict[str, str]


def make_absolute(job: Job) -> Job:
    """Returns the job with whole paths: they are the same on every host."""
    run = job.run if "://" in job.run else str(Path(job.run).expanduser().absolute())
    files = tuple(str(Path(file).expanduser().absolute()) for file in job.files)
    return replace(job, config=str(Path(job.config).expanduser().absolute()), run=run, files=files)


def make_commands(job: Job) -> list[HostCommand]:
    """Returns the command of every host, in the order of their ranks. The first one has the rendezvous and worker 0."""
    if not job.hosts:
        raise LockstepError("No hosts were named.", "Give --hosts FILE, or a list: --hosts node1:2,node2:2", code=2)
    job = make_absolute(job)
    addresses = order_addresses([host.public_name for host in job.hosts])
    first = job.hosts[0].public_name
    endpoint = f"[{first}]:{job.port}" if ":" in first else f"{first}:{job.port}"
    ordered = sorted(zip(addresses, job.hosts, strict=True), key=lambda pair: pair[0])
    least, nodes = read_least_nodes(job), len(job.hosts)
    variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    if job.interface is not None:
        variables |= name_interface(job.interface)
    commands = []
    for number, (address, host) in enumerate(ordered):
        processes = host.slots + (job.servers if number == nodes - 1 else 0)
        settings = f"{QUICK_RENDEZVOUS},is_host={'true' if number == 0 else 'false'}"
        words = [job.python, "-m", "torch.distributed.run"]
        words += ["--nnodes", f"{least}:{nodes}" if least < nodes else str(nodes)]
        words += ["--nproc-per-node", str(processes), "--max-restarts", str(job.restarts)]
        words += ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", job.name]
        words += ["--rdzv-conf", settings, "--local-addr", address, "-m", "lockstep", "--", *job.train_words]
        commands.append(HostCommand(host, processes, tuple(words), dict(variables)))
    return commands


def read_least_nodes(job: Job) -> int:
    """Returns with how many hosts the training continues while others are lost: with all, unless the user says less."""
    text = job.option("least-nodes") or str(len(job.hosts))
    if not text.isdecimal() or not 1 <= int(text) <= len(job.hosts):
        remedy = f"Give a number from 1 to {len(job.hosts)}."
        raise LockstepError(f"--with least-nodes={text} does not fit {len(job.hosts)} hosts.", remedy, code=2)
    if int(text) < len(job.hosts) and not job.restarts:
        remedy = "Set train.restarts to 1 or more, or leave least-nodes out."
        raise LockstepError("With train.restarts=0 nobody continues when a host is lost.", remedy, code=2)
    return int(text)


def name_interface(interface: str) -> dict[str, str]:
    """Returns the variables by which Gloo and NCCL learn which network they shall use."""
    return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}


def order_addresses(names: Sequence[str]) -> list[str]:
    """Returns the names under which torchrun shall know the hosts. It gives ranks in the order of these names, and the run
    folder is on the host of worker 0: so the first one is written in a way that comes first."""
    first, *others = names
    for way in (first, first.upper(), _write_as_number(first)):
        if all(way < other for other in others):
            return [way, *others]
    raise LockstepError(
        f"torchrun would not give worker 0 to {first}, because of the other hosts' names.",
        f"Put {min(others)} first, or give all hosts addresses in the hosts file: node1 address=10.0.0.1",
        code=2,
    )


def _write_as_number(name: str) -> str:
    try:
        return f"0x{int(ipaddress.IPv4Address(name)):08x}"
    except ValueError:
        return name


def list_ranks(commands: Sequence[HostCommand]) -> dict[str, list[int]]:
    """Returns the ranks of every host's processes, if these hosts take part."""
    ranks: dict[str, list[int]] = {}
    begin = 0
    for command in commands:
        ranks[command.host.name] = list(range(begin, begin + command.processes))
        begin += command.processes
    return ranks


def name_ranks(ranks: Sequence[int], workers: int) -> str:
    """Returns `Worker 2`, `Workers 2, 3` or `Workers 2, 3, Server 0`: servers have the last ranks."""
    own = [rank for rank in ranks if rank < workers]
    servers = [rank - workers for rank in ranks if rank >= workers]
    parts = [
        f"{kind}{'s' * (len(some) > 1)} {', '.join(map(str, some))}"
        for kind, some in (("Worker", own), ("Server", servers))
        if some
    ]
    return ", ".join(parts)
