"""The steps that averages are made of."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lockstep.explain.reading.steps import Column, Steps


@dataclass(frozen=True)
class MeasuredSteps:
    """The steps that averages are made of: those of the launches with the last setting, without warm-up."""

    workers: dict[int, Steps]
    warmup: int
    attempts: tuple[int, ...]
    partial: bool  # other launches were left out because they had another setting

    @property
    def primary(self) -> Steps:
        return next(iter(self.workers.values()))

    @property
    def count(self) -> int:
        return len(self.primary) if self.workers else 0

    @property
    def lockstep(self) -> bool:
        """Do the workers' gradients make one update in every step, so that its loss is that of all workers? (Workers that
        are `together` take part in every step, but may update their own copies.)"""
        return bool(self.workers) and bool((self.primary.common == 1).all())

    @cached_property
    def aligned(self) -> dict[int, Steps]:
        """The steps that every worker's journal has, row by row the same step."""
        shared = self.primary.step
        for steps in self.workers.values():
            shared = np.intersect1d(shared, steps.step)
        return {rank: steps.where(np.isin(steps.step, shared)) for rank, steps in self.workers.items()}

    def stack(self, name: str) -> Column:
        """A column of all workers side by side, [workers, steps]."""
        return np.stack([getattr(steps, name) for steps in self.aligned.values()])

    def how(self, what: str = "mean", who: str = "worker 0") -> str:
        """How a figure of these steps was measured."""
        setting = ", launches with the last setting only" if self.partial else ""
        counts = [len(steps) for steps in self.workers.values()]
        if len(set(counts)) > 1 and "worker 0" not in who:
            return f"{what} of {sum(counts):,} steps of {len(counts)} workers, warm-up steps left out, {who}{setting}"
        return f"{what} of {self.count:,} steps, {self.warmup} warm-up steps left out, {who}{setting}"
