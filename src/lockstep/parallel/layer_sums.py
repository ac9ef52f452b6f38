"""Small all-reduces inside forward and backward, for layers that need statistics of the whole global batch.

Such a layer (batch norm) has an attribute `sum_over_workers`. Strategies whose workers make one update of every step set a
function there that sums a tensor in place. With all others every worker's batch is its own.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import torch.distributed as dist
from torch import Tensor, nn

from lockstep.challenge import open_group
from lockstep.errors import LockstepError
from lockstep.parallel.exchange import ring_bytes
from lockstep.parallel.strategy import Clock, Outcome, Stamp
from lockstep.team import Team

BATCH_NORMS = nn.modules.batchnorm._BatchNorm  # noqa: SLF001
"""The base of torch's own batch norms, whose statistics and running averages would be one worker's."""


def connect_layers(module: nn.Module, sum_over_workers: Callable[[Tensor], None]) -> None:
    """Sets `sum_over_workers` in every layer that has it; refuses torch's own batch norm."""
    for layer in module.modules():
        if isinstance(layer, BATCH_NORMS):
            raise LockstepError(
                f"{type(layer).__name__} is torch's own batch norm. It computes statistics of one worker's share, so the "
                "model would depend on the number of workers.",
                "Use lockstep.models.batch_norm.BatchNorm in its place, or one worker.",
                code=2,
            )
        if hasattr(layer, "sum_over_workers"):
            setattr(layer, "sum_over_workers", sum_over_workers)  # noqa: B010


def sum_over(team: Team, module: nn.Module | None = None) -> Callable[[Tensor], None]:
    """Returns a function that sums a tensor of a layer in place over a team with a process group. All workers call it. NCCL
    carries out the exchanges of a group one after the other: on GPUs the sums of a `module` whose gradients travel there
    have a group of their own, so that they do not wait for gradients."""
    group, layers = team.workers, () if module is None else module.modules()
    if team.device.type != "cpu" and any(hasattr(layer, "sum_over_workers") for layer in layers):
        group = open_group("sums", range(team.size), timedelta(seconds=team.timeout_seconds))

    def add(tensor: Tensor) -> None:
        dist.all_reduce(tensor, group=group)

    return add


class LayerSums:
    """Sums tensors and keeps account: all workers wait for a sum, so its time belongs to the merge phase."""

    def __init__(self, clock: Clock, add: Callable[[Tensor], None]) -> None:
        self.clock, self.add = clock, add
        self.reset()

    def reset(self) -> None:
        self.phase = "forward"  # the current pass
        self._bytes = 0
        self._waits: list[tuple[str, Stamp, Stamp]] = []  # phase, begin, end

    def __call__(self, tensor: Tensor) -> None:
        begin = self.clock.stamp()
        self.add(tensor)
        self._waits.append((self.phase, begin, self.clock.stamp()))
        self._bytes += tensor.nbytes

    def settle(self, workers: int, outcome: Outcome) -> Outcome:
        """Ends a step, after the device caught up: moves waits to the merge phase and adds the sums to the outcome."""
        seconds = [self.clock.between(begin, end) for _, begin, end in self._waits]
        for (phase, _, _), waited in zip(self._waits, seconds, strict=True):
            self.clock.move(phase, "merge", waited)
        own = ring_bytes(self._bytes, workers)
        self.reset()
        sent = outcome.bytes_sent + own
        return replace(outcome, bytes_sent=sent, sums=len(seconds), sums_seconds=sum(seconds), sums_bytes=own)
