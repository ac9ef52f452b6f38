"""The processes of one launch: this worker's rank, and exchanging small Python values."""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from lockstep.devices import pick_device
from lockstep.errors import LockstepError, PortTaken
from lockstep.run import environment_variables

T = TypeVar("T")
LOOPBACK = "127.0.0.1"


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
        """Returns every worker's value, in rank order, on every worker."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.facts)
        return values

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
        for other in self.gather((failure.message, failure.remedy, failure.code) if failure else None):
            if other:
                raise LockstepError(*other)
        return result  # type: ignore[return-value]

    def primary_does(self, action: Callable[[], T]) -> T:
        """Runs `action` on the primary only; all workers get its result, or raise its failure."""
        result = self.all_do(lambda: action() if self.primary else None)
        return self.gather(result)[0]  # type: ignore[return-value]

    def close(self) -> None:
        if self.size + self.servers > 1 and dist.is_initialized():
            dist.destroy_process_group()


def _open_local_store(port: int, rank: int, size: int, timeout: timedelta) -> dist.Store:
    """Returns the store of a launch on one machine. It listens on loopback only: torch's own one would listen on all
    addresses, and it has no authentication."""
    if rank != 0:
        return dist.TCPStore(LOOPBACK, port, size, is_master=False, timeout=timeout)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError:
            raise PortTaken(f"Port {LOOPBACK}:{port} is already in use.", "Set MASTER_PORT to a free one.", 2) from None
        listener.listen(size)
        descriptor = listener.detach()
    return dist.TCPStore(
        LOOPBACK, port, size, is_master=True, timeout=timeout, wait_for_workers=False, master_listen_fd=descriptor
    )


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
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    rendezvous = environment_variables.rendezvous()
    if rendezvous is None:
        raise LockstepError(
            f"This is worker {rank} of {size}, but MASTER_ADDR and MASTER_PORT are not set.",
            "Set them to the first worker's address and a free port there, or start through torchrun.",
            code=2,
        )
    address = ":".join(rendezvous)
    try:
        timeout = timedelta(seconds=timeout_seconds)
        if environment_variables.launcher_pid() is not None and rendezvous[0] == LOOPBACK:
            store = _open_local_store(int(rendezvous[1]), rank, size, timeout)
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
        else:
            dist.init_process_group(backend, timeout=timeout)
        facts = dist.new_group(list(range(workers)), backend="gloo", timeout=timeout)
        group = dist.new_group(list(range(workers)), timeout=timeout) if servers else None
    except dist.DistNetworkError as error:
        if "EADDRINUSE" in str(error) or "already in use" in str(error):
            raise PortTaken(f"Port {address} is already in use.", "Set MASTER_PORT to a free one.", code=2) from None
        raise LockstepError(
            f"Worker {rank} could not reach the first worker at {address}.",
            "Check that all machines were started, that the address is right and that no firewall is between them.",
        ) from None
    except dist.DistStoreError:
        raise LockstepError(
            f"Not all {size} workers joined at {address} within {timeout_seconds:.0f} seconds.",
            "Check that the job was started on every machine.",
        ) from None
    return Team(rank, workers, place, facts, group, servers, timeout_seconds)
