"""The place of this process in a job: what an engine's environment variables say, whatever their names are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

from lockstep.errors import LockstepError

DEFAULT_PORT = 29400
LOOPBACK = "127.0.0.1"
ALONE_REMEDY = "Unset what does not belong to this job, or set LOCKSTEP_ENVIRONMENT=none to train on this machine only."

Variables = Mapping[str, str]
"""Environment variables that are set and not empty."""


@dataclass(frozen=True)
class WorkerPlacement:
    """This process is one worker, or server, of a job that an engine has started."""

    family: str  # the engine, for a sentence
    names: tuple[str, ...]  # of the variables that say so
    rank: int
    size: int  # of the job
    local_rank: int
    local_size: int | None = None  # processes on this host; None: not known
    host: str | None = None  # where process 0 listens; None: nobody says
    port: int | None = None
    is_derived: bool = False  # whether the host was concluded, so that process 0 must check that it runs there
    alternatives: tuple[str, ...] = ()  # other addresses of that host

    def describe(self) -> str:
        where = "" if self.host is None or self.port is None else f", rendezvous at {self.host}:{self.port}"
        return f"Started by {self.family} ({', '.join(self.names)}): process {self.rank} of {self.size}{where}."


@dataclass(frozen=True)
class NodePlacement:
    """This process is the only one that a platform has started on its host, and shall start the workers there."""

    family: str
    names: tuple[str, ...]
    rank: int  # of this host
    nodes: int  # hosts with workers or servers
    host: str  # of the first node
    port: int
    workers: int | None = None  # to start here, if the platform says it
    gpus: int | None = None  # of this host, as the platform says
    role: Literal["worker", "server", "evaluator"] = "worker"
    servers: int = 0  # nodes that are parameter servers: the last ones

    def describe(self) -> str:
        if self.role == "evaluator":
            return f"Started by {self.family} ({', '.join(self.names)}): the evaluator."
        what = "node" if self.role == "worker" else "parameter server: node"
        where = "" if self.nodes == 1 else f", rendezvous at {self.host}:{self.port}"
        return f"Started by {self.family} ({', '.join(self.names)}): {what} {self.rank} of {self.nodes}{where}."


Placement = WorkerPlacement | NodePlacement


def read_number(variables: Variables, name: str) -> int:
    """Returns the value of a variable that must be there and be a whole number."""
    text = require(variables, name)
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise LockstepError(f"{name} is {text!r}, which is not a whole number.", ALONE_REMEDY, code=2)
    return int(text)


def read_optional_number(variables: Variables, name: str) -> int | None:
    return read_number(variables, name) if name in variables else None


def require(variables: Variables, name: str, because: str = "") -> str:
    """Returns the value of a variable, and refuses to continue without it."""
    if name not in variables:
        others = f" although {because}" if because else ""
        raise LockstepError(f"{name} is not set{others}.", f"Set it. {ALONE_REMEDY}", code=2)
    return variables[name]


def check_below(rank_name: str, rank: int, size_name: str, size: int) -> None:
    """Refuses a rank that is not one of 0 ... size - 1."""
    if rank >= size:
        raise LockstepError(f"{rank_name} is {rank}, but {size_name} is {size}.", ALONE_REMEDY, code=2)


def read_port(variables: Variables, name: str, otherwise: int) -> int:
    port = read_optional_number(variables, name)
    if port is not None and not 0 < port < 1 << 16:
        raise LockstepError(f"{name} is {port}, which is no TCP port.", "Choose one from 1024 to 65535.", code=2)
    return otherwise if port is None else port


def derive_port(job: str) -> int:
    """Returns a port that all processes of a job derive from its name, below those that systems give to connections."""
    return 20_000 + crc32(job.encode()) % 10_000


def is_loopback(host: str) -> bool:
    """Whether a name or address can only mean the machine that uses it."""
    return host.lower() in ("localhost", "::1") or host.startswith("127.")
