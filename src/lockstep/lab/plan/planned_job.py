"""What a plan predicts: a job, and one way of exchanging its gradients."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from lockstep.errors import LockstepError
from lockstep.explain.reading.steps import Column
from lockstep.lab.plan.profile import Profile

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
SETTINGS = {
    "allreduce": ("accumulate", "gradients", "rank"),
    "sharded": ("accumulate", "gradients"),
    "server": ("accumulate", "servers", "mode"),
    "local": ("accumulate", "gradients", "every"),
    "replicas": ("accumulate",),
}
"""The settings of each strategy."""
STRATEGIES = tuple(SETTINGS)
GRADIENTS = (*BYTES, "powersgd")


@dataclass(frozen=True)
class PlannedJob:
    """What is trained, and how its batches grow with the workers."""

    profile: Profile
    words: float  # target words of a step: of all workers, or of each one with `per_worker`
    per_worker: bool = False
    bucket_mb: float = 25.0
    threads: int = 1
    cores: int | None = None  # shared by all workers of an emulated cluster; None: each worker has its own
    contention: dict[int, float] = field(default_factory=lambda: {1: 1.0})  # slowdown by number of replicas

    def words_per_worker(self, workers: Column) -> Column:
        return np.full_like(workers, self.words) if self.per_worker else self.words / workers

    def slowdown(self, workers: Column) -> Column:
        """Interpolates between the measured counts. Beyond them it grows with the workers, because they share cores."""
        counts = sorted(self.contention)
        values = [self.contention[n] for n in counts]
        beyond = np.maximum(1.0, workers / counts[-1]) if len(counts) > 1 and values[-1] > 1.0 else 1.0
        return np.interp(workers, counts, values) * beyond


@dataclass(frozen=True)
class Choice:
    """One way of exchanging gradients: a strategy with its settings."""

    strategy: str = "allreduce"
    gradients: str = "fp32"
    accumulate: int = 1  # micro-batches in a step, of which the last one communicates
    every: int = 10  # local: steps between two synchronizations
    servers: int = 0  # server: dedicated processes; 0: every worker has a shard
    mode: str = "sync"  # server
    rank: int = 8  # powersgd

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise LockstepError(f"The planner knows no strategy {self.strategy}.", f"It knows {known}.", code=2)
        if self.gradients not in GRADIENTS:
            known = ", ".join(GRADIENTS)
            raise LockstepError(f"The planner knows no gradient format {self.gradients}.", f"It knows {known}.", code=2)
        if self.mode not in ("sync", "async"):
            raise LockstepError(f"The strategy server has no mode {self.mode}.", "Use sync or async.", code=2)
        if min(self.accumulate, self.every, self.rank) < 1:
            raise LockstepError(
                f"{self.strategy}: accumulate, every and rank must be at least 1.", "Use a number from 1 on.", code=2
            )
        if self.gradients == "powersgd" and self.strategy != "allreduce":
            raise LockstepError("Only allreduce has gradients=powersgd.", "Use allreduce:gradients=powersgd.", code=2)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads NAME or NAME:setting=value:..., such as `allreduce:gradients=bf16:accumulate=4`."""
        name, *pairs = text.strip().split(":")
        values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        texts, numbers = ("gradients", "mode"), ("accumulate", "every", "servers", "rank")
        is_valid = len(values) == len(pairs) and all(key in texts or key in numbers for key in values)
        if not is_valid or not all(values[key].isdigit() for key in numbers if key in values):
            raise LockstepError(
                f"Cannot read the strategy {text!r}.",
                f"Write NAME:setting=value, with {', '.join((*texts, *numbers))}.",
                code=2,
            )
        for key in values:
            if name in SETTINGS and key not in SETTINGS[name]:
                owners = [strategy for strategy, settings in SETTINGS.items() if key in settings]
                raise LockstepError(f"{name} has no setting {key}.", f"It is for {', '.join(owners)}.", code=2)
        defaults = cls()
        return cls(
            name,
            gradients=values.get("gradients", defaults.gradients),
            accumulate=int(values.get("accumulate", defaults.accumulate)),
            every=int(values.get("every", defaults.every)),
            servers=int(values.get("servers", defaults.servers)),
            mode=values.get("mode", defaults.mode),
            rank=int(values.get("rank", defaults.rank)),
        )

    @property
    def is_synchronous(self) -> bool:
        """Whether all workers take every step together."""
        return self.strategy in ("allreduce", "sharded") or (self.strategy == "server" and self.mode == "sync")

    @property
    def name(self) -> str:
        suffix = {"server": f" {self.mode}", "local": f" every {self.every}"}.get(self.strategy, "")
        suffix += f", {self.servers} servers" if self.servers else ""
        gradients = "" if self.strategy in ("server", "replicas") else f" {self.gradients}"
        return f"{self.strategy}{suffix}{gradients}{f' accumulation {self.accumulate}' if self.accumulate > 1 else ''}"
