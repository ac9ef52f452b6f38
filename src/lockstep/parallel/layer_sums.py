"""Small sums over all workers in the middle of a pass, for layers that need to know the whole global batch.

Such a layer (batch norm) has an attribute `sum_over_workers`. A strategy whose workers take every step together and make
one update of it sets a function there that adds a tensor up in place; with all others every worker's batch is its own.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from lockstep.errors import LockstepError
from lockstep.parallel.compress import ring_bytes
from lockstep.parallel.strategy import Clock, Outcome
from lockstep.team import Team

BATCH_NORMS = nn.modules.batchnorm._BatchNorm  # noqa: SLF001
"""The base of torch's own, whose statistics and saved averages would be one worker's."""


def connect(module: nn.Module, sum_over_workers: Callable[[Tensor], None]) -> None:
    for layer in module.modules():
        if isinstance(layer, BATCH_NORMS):
            raise LockstepError(
                f"{type(layer).__name__} is torch's own batch norm, which does not know the workers of a run: what is "
                "learned would depend on their number.",
                "Use lockstep.models.batch_norm.BatchNorm in its place, or one worker.",
                code=2,
            )
        if hasattr(layer, "sum_over_workers"):
            setattr(layer, "sum_over_workers", sum_over_workers)  # noqa: B010


def among(team: Team) -> Callable[[Tensor], None]:
    """Adds up over a team whose members stay the same."""

    def add(tensor: Tensor) -> None:
        dist.all_reduce(tensor, group=team.workers)

    return add


class LayerSums:
    """Adds up, and keeps the books: everybody waits for a sum, so its time is merge time."""

    def __init__(self, clock: Clock, add: Callable[[Tensor], None]) -> None:
        self.clock, self.add = clock, add
        self.forget()

    def forget(self) -> None:
        self.phase = "forward"  # the pass that is under way
        self._bytes = 0
        self._waits: list[tuple[str, Any, Any]] = []  # phase, begin, end

    def __call__(self, tensor: Tensor) -> None:
        begin = self.clock.stamp()
        self.add(tensor)
        self._waits.append((self.phase, begin, self.clock.stamp()))
        self._bytes += tensor.nbytes

    def settle(self, workers: int, outcome: Outcome) -> Outcome:
        """Closes the books of a step, after the device caught up: books waits as merge time, and adds to the step's
        outcome what was sent and waited for."""
        seconds = [self.clock.between(begin, end) for _, begin, end in self._waits]
        for (phase, _, _), waited in zip(self._waits, seconds, strict=True):
            self.clock.move(phase, "merge", waited)
        own = ring_bytes(self._bytes, workers)
        self.forget()
        sent = outcome.bytes_sent + own
        return replace(outcome, bytes_sent=sent, sums=len(seconds), sums_seconds=sum(seconds), sums_bytes=own)
