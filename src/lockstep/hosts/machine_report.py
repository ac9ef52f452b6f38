"""What a host says about itself: versions, clock, cores, memory, network addresses, GPUs."""

import hashlib
import ipaddress
import os
import platform
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import lockstep
from lockstep.errors import LockstepError
from lockstep.files import read_json_value
from lockstep.gpu_driver import list_gpus
from lockstep.launch.control_group import find_control_group
from lockstep.run import environment_variables

BF16_FLAGS = ("amx_bf16", "avx512_bf16")


@dataclass(frozen=True)
class MachineReport:
    """What the agent of a host says."""

    host: str
    python: str
    torch: str
    lockstep: str
    code: str  # digest of Lockstep's own files
    clock: float  # seconds since 1970
    cores: int  # that the system lets this process use
    quota: float | None  # cores that its control group grants
    threads: int | None  # OMP_NUM_THREADS
    free_memory: int
    flags: list[str]  # of the processor, that matter
    gpus: list[str]
    driver: str
    interfaces: dict[str, list[str]]  # addresses
    route: str | None  # the interface on the way to the first host
    route_address: str | None  # the own address on it
    named_interface: str  # GLOO_SOCKET_IFNAME
    own_address: str | None  # what the own name resolves to
    corpus: str | None  # digest of the corpus in the folder; None: it is not there


def read_facts(first: str | None = None, corpus: str | None = None) -> dict[str, object]:
    """Returns MachineReport of this host. `first` is the host of the first worker."""
    import psutil

    interfaces = {
        name: [one.address.partition("%")[0] for one in addresses if one.family in (socket.AF_INET, socket.AF_INET6)]
        for name, addresses in psutil.net_if_addrs().items()
    }
    address = find_own_address(first) if first is not None else None
    group = find_control_group(os.getpid())
    free = psutil.virtual_memory().available
    gpus, driver = list_gpus()
    facts = MachineReport(
        host=socket.gethostname(),
        python=platform.python_version(),
        torch=_find_version("torch"),
        lockstep=_find_version("lockstep-train"),
        code=_digest_code(),
        clock=time.time(),
        cores=len(os.sched_getaffinity(0)),
        quota=group.cores,
        threads=environment_variables.openmp_threads(),
        free_memory=free if group.free_memory is None else min(free, group.free_memory),
        flags=_read_flags(),
        gpus=gpus,
        driver=driver,
        interfaces=interfaces,
        route=next((name for name, own in interfaces.items() if address in own), None),
        route_address=address,
        named_interface=environment_variables.socket_interface("gloo"),
        own_address=_resolve(socket.gethostname()),
        corpus=None if corpus is None else _read_corpus(Path(corpus)),
    )
    return asdict(facts)


def find_own_address(other: str) -> str | None:
    """Returns the address of this host on the way to another one; for this host itself, one that others may reach."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(other, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)  # sends nothing
            return str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return None


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _resolve(name: str) -> str | None:
    with suppress(OSError):
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    return None


def _find_version(package: str) -> str:
    with suppress(PackageNotFoundError):
        return version(package)
    return "none"


def _digest_code() -> str:
    digest = hashlib.sha256()
    root = Path(lockstep.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _read_flags() -> list[str]:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        known = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
        return [flag for flag in ("avx2", "avx512f", *BF16_FLAGS) if flag in known]
    return []


def _read_corpus(folder: Path) -> str | None:
    with suppress(LockstepError, OSError):
        index = read_json_value(folder / "corpus.json")
        return str(index["digest"]) if isinstance(index, dict) and "digest" in index else None
    return None
