"""The processes of one launch: this worker's rank, and exchanging small Python values."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict, TypeVar

import torch
import torch.distributed as dist

from lockstep import messages
from lockstep.challenge import MissingMembers, check_members, list_clients, open_group, sign_in
from lockstep.devices import pick_device
from lockstep.errors import LockstepError, PortTaken, Unreachable
from lockstep.job_secret import read_secret
from lockstep.notices import warn
from lockstep.run import environment_variables
from lockstep.signed_store import ForeignEntry, SignedStore

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
MOST_NAMED = 16
"""Missing processes in a sentence."""


class FailureFacts(TypedDict):
    """The parts of a LockstepError."""

    message: str
    remedy: str
    code: int


@dataclass
class Team:
    """Rank, size and device of this worker. Small Python values travel over a separate Gloo group, so that they never
    queue behind gradients and work the same on CPU and GPU."""

    rank: int
    size: int
    device: torch.device
    facts: dist.ProcessGroup | None = None
    workers: dist.ProcessGroup | None = None  # for tensors; None: all processes are workers
    servers: int = 0  # processes beyond the workers, which own parameters
    timeout_seconds: float = 600.0
    store: SignedStore | None = None  # the rendezvous; torch needs this reference while it uses the store

    @property
    def serving(self) -> bool:
        """Whether this process is a server."""
        return self.rank >= self.size

    @property
    def elastic(self) -> bool:
        """Whether workers may die and come back, so that no process group connects them."""
        return self.size > 1 and self.facts is None

    def deciders(self) -> "Team":
        """The workers that make decisions together with this one: all, or only itself where workers are elastic."""
        return self.alone() if self.elastic else self

    def alone(self) -> "Team":
        """Returns a team of this worker only."""
        return Team(0, 1, self.device)

    @property
    def primary(self) -> bool:
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Returns every worker's value, in rank order, on every worker. Values are what JSON can say: None, booleans,
        numbers, strings, lists and dicts by string. Anything else is a TypeError, on every worker."""
        if self.size == 1:
            messages.check_plain(value)
            return [value]
        assert self.facts is not None, "elastic workers exchange nothing but gradients"
        return messages.gather(value, self.facts)

    def all_do(self, action: Callable[[], T]) -> T:
        """Runs `action` everywhere; when it fails on any worker, all of them raise the first failure."""
        failure: LockstepError | None = None
        result: T | None = None
        try:
            result = action()
        except LockstepError as error:
            failure = error
        except OSError as error:
            failure = LockstepError(f"{error.filename or 'A file'}: {error.strerror or error}.", "Check the disk.")
        facts: FailureFacts | None = None
        if failure is not None:
            facts = {"message": failure.message, "remedy": failure.remedy, "code": failure.code}
        for other in self.gather(facts):
            if other is not None:
                raise LockstepError(**other)
        return result  # type: ignore[return-value]

    def primary_does(self, action: Callable[[], T]) -> T:
        """Runs `action` on the primary only; all workers get its result, which must be plain, or raise its failure."""
        result = self.all_do(lambda: action() if self.primary else None)
        return self.gather(result)[0]  # type: ignore[return-value]

    def close(self) -> None:
        if self.size + self.servers > 1 and dist.is_initialized():
            dist.destroy_process_group()


@dataclass(frozen=True)
class Rendezvous:
    """Where the processes of a launch meet."""

    host: str
    port: str
    rank: int
    size: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether all processes are on this machine and the first one makes the store: then nobody else can connect."""
        is_one_machine = environment_variables.local_world_size(default=self.size) == self.size
        return self.host == LOOPBACK and is_one_machine and not environment_variables.launcher_hosts_store()


def _find_rendezvous() -> Rendezvous:
    rank, size = environment_variables.rank(), environment_variables.world_size()
    rendezvous = environment_variables.rendezvous()
    if rendezvous is None:
        raise LockstepError(
            f"This is worker {rank} of {size}, but MASTER_ADDR and MASTER_PORT are not set.",
            "Set them to the first worker's address and a free port there, or start through torchrun.",
            code=2,
        )
    if not rendezvous[1].isdecimal():
        raise LockstepError(f"MASTER_PORT is {rendezvous[1]!r}.", "Set it to a number.", code=2)
    return Rendezvous(*rendezvous, rank, size)


def _open_local_store(meeting: Rendezvous, timeout: timedelta) -> dist.Store:
    """Returns the store of a launch on one machine. torch's own one would listen on all addresses, and it has no
    authentication."""
    if meeting.rank != 0:
        return dist.TCPStore(LOOPBACK, int(meeting.port), meeting.size, is_master=False, timeout=timeout)
    return serve_loopback_store(int(meeting.port), timeout)


def serve_loopback_store(port: int, timeout: timedelta) -> dist.TCPStore:
    """Returns a store that listens on loopback, at a free port for 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError:
            raise PortTaken(f"Port {LOOPBACK}:{port} is already in use.", "Set MASTER_PORT to a free one.", 2) from None
        listener.listen(socket.SOMAXCONN)
        port, descriptor = int(listener.getsockname()[1]), listener.detach()
    return dist.TCPStore(
        LOOPBACK, port, is_master=True, timeout=timeout, wait_for_workers=False, master_listen_fd=descriptor
    )


def _open_store(meeting: Rendezvous, timeout: timedelta) -> SignedStore:
    """Returns the store of this launch when all processes have signed in there."""
    secret = read_secret()
    if meeting.is_local:
        store = _open_local_store(meeting, timeout)
    else:
        # torch's `env://` would wait for all workers without saying who is missing; `sign_in` does.
        is_first = meeting.rank == 0 and not environment_variables.launcher_hosts_store()
        store = dist.TCPStore(
            meeting.host,
            int(meeting.port),
            is_master=is_first,
            timeout=timeout,
            wait_for_workers=False,
            multi_tenant=True,
        )
        store.set_timeout(timeout)
        if not secret and meeting.rank == 0:
            warn(
                f"Whoever reaches {meeting.address} can join this job: set LOCKSTEP_SECRET_FILE on all machines "
                "(docs/use/several-machines.md)."
            )
    signed = SignedStore(store, secret)
    sign_in(signed, int(meeting.port), meeting.rank, meeting.size)
    return signed


def _connect(meeting: Rendezvous, place: torch.device, workers: int, timeout_seconds: float) -> Team:
    """Makes the process groups of a launch: that of all processes, that for facts, and that of the workers if there are
    servers."""
    timeout = timedelta(seconds=timeout_seconds)
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    if meeting.is_local:
        environment_variables.keep_gloo_on_loopback()
    store = _open_store(meeting, timeout)
    dist.init_process_group(backend, store=store, rank=meeting.rank, world_size=meeting.size, timeout=timeout)
    assert dist.group.WORLD is not None
    check_members("all", dist.group.WORLD, read_secret())
    facts = open_group("facts", range(workers), timeout, "gloo")
    servers = meeting.size - workers
    group = open_group("workers", range(workers), timeout) if servers else None
    return Team(meeting.rank, workers, place, facts, group, servers, timeout_seconds, store)


@contextmanager
def _explaining(meeting: Rendezvous, timeout_seconds: float) -> Iterator[None]:
    """Turns the errors of joining into a sentence."""
    try:
        yield
    except dist.DistNetworkError as error:
        if "EADDRINUSE" in str(error) or "already in use" in str(error):
            raise PortTaken(
                f"Port {meeting.address} is already in use.", "Set MASTER_PORT to a free one.", code=2
            ) from None
        raise Unreachable(
            f"Worker {meeting.rank} could not reach the first worker at {meeting.address}.",
            "Check that all machines were started, that the address is right and that no firewall is between them.",
        ) from None
    except MissingMembers as error:
        raise describe_missing(meeting, error.ranks, timeout_seconds) from None
    except dist.DistStoreError:
        raise LockstepError(
            f"Not all {meeting.size} workers joined at {meeting.address} within {timeout_seconds:.0f} seconds.",
            "Check that the job was started on every machine.",
        ) from None
    except (ForeignEntry, ValueError, MemoryError):
        clients = " and ".join(list_clients(int(meeting.port)))
        raise LockstepError(
            f"A program without the secret of this job has written to the rendezvous at {meeting.address}"
            f"{f', to which {clients} are connected' if clients else ''}.",
            "Give all workers the same LOCKSTEP_SECRET_FILE, and let only the machines of the job reach each other.",
        ) from None


def describe_missing(meeting: Rendezvous, missing: list[int], timeout_seconds: float) -> LockstepError:
    """Returns the error that says how many processes joined, and which ones did not."""
    ranks = ", ".join(map(str, missing[:MOST_NAMED])) + " ..." * (len(missing) > MOST_NAMED)
    sentence = (
        f"{meeting.size - len(missing)} of {meeting.size} processes joined at {meeting.address} within "
        f"{timeout_seconds:.0f} seconds. Missing: {ranks}."
    )
    remedy = "Check that the job was started on every machine, everywhere with the same rendezvous."
    if meeting.host.startswith("127.") or meeting.host == "localhost":
        remedy = f"{meeting.host} is each machine itself: set MASTER_ADDR to the first machine if there are several."
    return LockstepError(sentence, remedy)


def join(device: str = "auto", timeout_seconds: float = 600.0, servers: int = 0, elastic: bool = False) -> Team:
    """Joins the other processes that the environment names (RANK, WORLD_SIZE, MASTER_ADDR, ...); the last `servers` of
    them own parameters. `elastic` workers may die and come back: they form quorums later, and none is joined here."""
    rank, size = environment_variables.rank(), environment_variables.world_size()
    workers = size - servers
    if workers < 1:
        raise LockstepError(
            f"{size} process{'es' * (size > 1)} cannot be {servers} servers and at least one worker.",
            "Start more of them, or lower strategy.servers.",
            code=2,
        )
    place = pick_device("cpu" if rank >= workers else device, environment_variables.local_rank())
    if size == 1:
        return Team(rank, size, place)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if elastic:
        return Team(rank, size, place, timeout_seconds=timeout_seconds)
    meeting = _find_rendezvous()
    with _explaining(meeting, timeout_seconds):
        return _connect(meeting, place, workers, timeout_seconds)
