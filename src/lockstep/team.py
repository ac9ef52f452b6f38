"""The processes of one launch as a worker sees them: who am I, and how do we exchange small facts."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from lockstep.errors import LockstepError, PortTaken

T = TypeVar("T")


@dataclass
class Team:
    """Rank, size and device of this worker. Small Python facts travel over a Gloo group of their own, so that they
    never queue behind gradients and work the same on CPU and GPU."""

    rank: int
    size: int
    device: torch.device
    facts: dist.ProcessGroup | None = None
    workers: dist.ProcessGroup | None = None  # for tensors; None: all processes are workers
    servers: int = 0  # processes beyond the workers, which hold parameters
    timeout_seconds: float = 600.0

    @property
    def serving(self) -> bool:
        """Is this process one of the servers?"""
        return self.rank >= self.size

    @property
    def elastic(self) -> bool:
        """Do the workers come and go, so that no group connects them?"""
        return self.size > 1 and self.facts is None

    def deciders(self) -> "Team":
        """Those who settle small facts with this worker."""
        return self.alone() if self.elastic else self

    def alone(self) -> "Team":
        """This worker as a team of its own."""
        return Team(0, 1, self.device)

    @property
    def primary(self) -> bool:
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Every worker's value, in rank order, on every worker."""
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
        """Runs `action` on the primary only; everybody gets its result, or raises its failure."""
        result = self.all_do(lambda: action() if self.primary else None)
        return self.gather(result)[0]  # type: ignore[return-value]

    def close(self) -> None:
        if self.size + self.servers > 1 and dist.is_initialized():
            dist.destroy_process_group()


def pick_device(wanted: str, local_rank: int) -> torch.device:
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise LockstepError("train.device is cuda, but this machine has no usable GPU.", "Set train.device=auto.", 2)
    bound = bool(os.environ.get("CUDA_VISIBLE_DEVICES")) and "LOCKSTEP_LAUNCHER" not in os.environ
    if bound and torch.cuda.device_count() == 1:
        local_rank = 0  # an engine shows each of its workers a GPU of its own
    if local_rank >= torch.cuda.device_count():
        raise LockstepError(
            f"Worker {local_rank} on this machine has no GPU: there are {torch.cuda.device_count()}.",
            "Start at most one worker per GPU.",
            code=2,
        )
    return torch.device("cuda", local_rank)


def join(device: str = "auto", timeout_seconds: float = 600.0, servers: int = 0, elastic: bool = False) -> Team:
    """Meets the other processes that the environment (RANK, WORLD_SIZE, MASTER_ADDR, ...) tells of; the last `servers`
    of them hold parameters. `elastic`: they come and go, and nobody is met now."""
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    workers = size - servers
    if workers < 1:
        raise LockstepError(
            f"{size} process{'es' * (size > 1)} cannot be {servers} servers and at least one worker.",
            "Start more of them, or lower strategy.servers.",
            code=2,
        )
    place = pick_device("cpu" if rank >= workers else device, int(os.environ.get("LOCAL_RANK", "0")))
    if size == 1:
        return Team(rank, size, place)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if elastic:
        return Team(rank, size, place, timeout_seconds=timeout_seconds)
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
        raise LockstepError(
            f"This is worker {rank} of {size}, but MASTER_ADDR and MASTER_PORT do not say where they meet.",
            "Set both to the first worker's address and a free port there, or start through torchrun.",
            code=2,
        )
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_seconds))
        timeout = timedelta(seconds=timeout_seconds)
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
            f"Not all {size} workers came to {address} within {timeout_seconds:.0f} seconds.",
            "Check that the job was started on every machine.",
        ) from None
    return Team(rank, workers, place, facts, group, servers, timeout_seconds)
