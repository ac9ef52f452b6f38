"""The steps that count for averages."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lockstep.explain.reading.steps import Column, Steps


@dataclass(frozen=True)
class MeasuredSteps:
    """The steps that count for averages: those of the launches with the last setting, without warm-up."""

    workers: dict[int, Steps]
    warmup: int
    attempts: tuple[int, ...]
    partial: bool  # whether launches with another setting were left out

    @property
    def primary(self) -> Steps:
        return next(iter(self.workers.values()))

    @property
    def count(self) -> int:
        return len(self.primary) if self.workers else 0

    @property
    def lockstep(self) -> bool:
        """Whether the gradients of all workers make one update in every step, so that its loss is that of all workers."""
        return bool(self.workers) and self.primary.is_global

    @cached_property
    def aligned(self) -> dict[int, Steps]:
        """The steps that all journals have: row i is the same step for every worker."""
        shared = self.primary.step
        for steps in self.workers.values():
            shared = np.intersect1d(shared, steps.step)
        return {rank: steps.where(np.isin(steps.step, shared)) for rank, steps in self.workers.items()}

    def stack(self, name: str) -> Column:
        """Returns a column of all workers, [workers, steps]."""
        return np.stack([getattr(steps, name) for steps in self.aligned.values()])

    def describe(self, what: str = "mean", who: str = "worker 0") -> str:
        """Returns how a figure was computed from these steps, for people."""
        setting = ", launches with the last setting only" if self.partial else ""
        counts = [len(steps) for steps in self.workers.values()]
        if len(set(counts)) > 1 and "worker 0" not in who:
            return f"{what} of {sum(counts):,} steps of {len(counts)} workers, warm-up steps left out, {who}{setting}"
        return f"{what} of {self.count:,} steps, {self.warmup} warm-up steps left out, {who}{setting}"
