"""What is to be predicted: a job, and one way of bringing its gradients together."""

from dataclasses import dataclass, field
from typing import Any, Self

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
"""What can be chosen for each strategy."""
STRATEGIES = tuple(SETTINGS)
GRADIENTS = (*BYTES, "powersgd")


@dataclass(frozen=True)
class PlannedJob:
    """What is trained, and how its batches grow with the workers."""

    profile: Profile
    words: float  # target words of a step: of all workers, or of each
    per_worker: bool = False
    bucket_mb: float = 25.0
    threads: int = 1
    cores: int | None = None  # that all workers share, where they are emulated on one machine; None: each has its own
    contention: dict[int, float] = field(default_factory=lambda: {1: 1.0})  # times slower that replicas of so many are

    def share(self, workers: Column) -> Column:
        """Target words of one worker's part of a step."""
        return np.full_like(workers, self.words) if self.per_worker else self.words / workers

    def slowdown(self, workers: Column) -> Column:
        """Between measured counts on a line; beyond them in proportion to the workers, because cores are shared."""
        known = sorted(self.contention)
        values = [self.contention[n] for n in known]
        beyond = np.maximum(1.0, workers / known[-1]) if len(known) > 1 and values[-1] > 1.0 else 1.0
        return np.interp(workers, known, values) * beyond


@dataclass(frozen=True)
class Choice:
    """One way of bringing gradients together."""

    strategy: str = "allreduce"
    gradients: str = "fp32"
    accumulate: int = 1  # micro-batches in a step, of which the last one communicates
    every: int = 10  # local: steps between meetings
    servers: int = 0  # server: dedicated processes; 0: every worker holds a part
    mode: str = "sync"  # server
    rank: int = 8  # powersgd

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise LockstepError(f"The planner knows no strategy {self.strategy}.", f"It knows {known}.", code=2)
        if self.gradients not in GRADIENTS:
            known = ", ".join(GRADIENTS)
            raise LockstepError(f"Gradients cannot travel as {self.gradients}.", f"Known: {known}.", code=2)
        if self.mode not in ("sync", "async"):
            raise LockstepError(f"Parameter servers know no mode {self.mode}.", "It is sync or async.", code=2)
        if min(self.accumulate, self.every, self.rank) < 1:
            raise LockstepError(f"{self.strategy}: numbers must be at least 1.", "Correct them.", code=2)
        if self.gradients == "powersgd" and self.strategy != "allreduce":
            raise LockstepError("powersgd is for allreduce.", "Leave one of them out.", code=2)

    @classmethod
    def of(cls, word: str) -> Self:
        """NAME or NAME:setting=value:..., such as `allreduce:gradients=bf16:accumulate=4`."""
        name, *pairs = word.strip().split(":")
        told = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        texts, numbers = ("gradients", "mode"), ("accumulate", "every", "servers", "rank")
        good = len(told) == len(pairs) and all(key in texts or key in numbers for key in told)
        if not good or not all(told[key].isdigit() for key in numbers if key in told):
            raise LockstepError(
                f"Cannot read the strategy {word!r}.",
                f"Write NAME:setting=value, with {', '.join((*texts, *numbers))}.",
                code=2,
            )
        for key in told:
            if name in SETTINGS and key not in SETTINGS[name]:
                owners = [strategy for strategy, settings in SETTINGS.items() if key in settings]
                raise LockstepError(f"{name} has no setting {key}.", f"It is for {', '.join(owners)}.", code=2)
        values: dict[str, Any] = {key: int(value) if key in numbers else value for key, value in told.items()}
        return cls(name, **values)

    @property
    def one_update(self) -> bool:
        """Do all workers take every step together?"""
        return self.strategy in ("allreduce", "sharded") or (self.strategy == "server" and self.mode == "sync")

    @property
    def name(self) -> str:
        more = {"server": f" {self.mode}", "local": f" every {self.every}"}.get(self.strategy, "")
        more += f", {self.servers} servers" if self.servers else ""
        format = "" if self.strategy in ("server", "replicas") else f" {self.gradients}"
        return f"{self.strategy}{more}{format}{f' accumulation {self.accumulate}' if self.accumulate > 1 else ''}"
