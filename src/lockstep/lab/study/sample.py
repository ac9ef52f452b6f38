"""What one trial of a study measured.

Speed is words by the clock on the wall, from the end of the warm-up to the last step; it knows nothing of phases. The parts
of a step come from the phases of the workers: where they step together those of whoever came last (as in the verdict of a
report), else the mean over the workers, each weighted by its speed. What they leave of the step by the clock is `other`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from lockstep.errors import LockstepError
from lockstep.explain.measures.bottleneck import compare_work
from lockstep.explain.reading.steps import PHASES, Column
from lockstep.run.journal import Line

PARTS = ("input", "work", "imbalance", "merge", "update", "other")
"""Of a step; `work` is forward and backward of a worker that has its fair share, `imbalance` what the last one has more."""


@dataclass(frozen=True)
class TrialSample:
    """Seconds are of a step, means over the measured ones; words are target words (or images)."""

    workers: int
    words_per_step: float  # of one worker
    step: float
    total: float  # seconds of all measured steps together
    phases: dict[str, float]  # mean over the workers
    parts: dict[str, float]  # they add up to `step`

    @property
    def words_per_second(self) -> float:
        """Of all workers."""
        return self.workers * self.words_per_step / self.step

    def scaled(self, words: float) -> "TrialSample":
        """As if a worker's share of a step had so many words."""
        factor = words / self.words_per_step
        phases = {name: factor * value for name, value in self.phases.items()}
        parts = {name: factor * value for name, value in self.parts.items()}
        return TrialSample(self.workers, words, factor * self.step, self.total, phases, parts)

    def facts(self) -> dict[str, Any]:
        return asdict(self) | {"words_per_second": self.words_per_second}

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "TrialSample":
        return cls(**{name: facts[name] for name in cls.__dataclass_fields__})


def middle(samples: Sequence[TrialSample]) -> TrialSample:
    """The trial of median speed, or the mean of the two in the middle: its parts still add up to its step."""
    ranked = sorted(samples, key=lambda sample: sample.words_per_second)
    chosen = ranked[(len(ranked) - 1) // 2 : len(ranked) // 2 + 1]
    return TrialSample(
        chosen[0].workers,
        fmean(one.words_per_step for one in chosen),
        fmean(one.step for one in chosen),
        fmean(one.total for one in chosen),
        {name: fmean(one.phases[name] for one in chosen) for name in PHASES},
        {name: fmean(one.parts[name] for one in chosen) for name in PARTS},
    )


@dataclass(frozen=True)
class _WorkerTimes:
    """The measured lines of a worker, in the order of time, and the moment before the first of them."""

    lines: list[Line]
    begin: float

    @property
    def seconds(self) -> float:
        return float(self.lines[-1]["time"]) - self.begin

    @property
    def words(self) -> float:
        return float(sum(line["words"]["target"] for line in self.lines))

    def column(self, name: str) -> Column:
        return np.array([line["phases"][name] for line in self.lines])

    def mean(self, name: str) -> float:
        return float(self.column(name).mean())


def measure(steps: list[list[Line]], warmup: int, silent: bool = False) -> TrialSample:
    """From the step lines of every worker; `silent` tells that nothing was exchanged, so that nobody waited."""
    count = len(steps)
    journals = [sorted(lines, key=lambda line: float(line["time"])) for lines in steps]
    together = count > 1 and not silent and all(line["scope"] == "global" for lines in journals for line in lines)
    workers = _in_step(journals, warmup, together) if together or silent else _in_time(journals, warmup)
    if not workers or min(one.seconds for one in workers) <= 0:
        raise LockstepError("A trial was too short to be measured.", "Raise --steps.")
    rate = sum(one.words / one.seconds for one in workers)
    words = sum(one.words for one in workers) / sum(len(one.lines) for one in workers)
    step = count * words / rate
    if together:
        means = {name: fmean(one.mean(name) for one in workers) for name in PHASES}
        parts = _of_the_last(workers)
    else:
        speeds = np.array([one.words / one.seconds for one in workers]) / rate
        fits = [float(speed) * words * len(one.lines) / one.words for speed, one in zip(speeds, workers, strict=True)]
        means = {name: sum(fit * one.mean(name) for fit, one in zip(fits, workers, strict=True)) for name in PHASES}
        parts = _of_all(workers, means)
    parts["other"] = step - sum(parts.values())
    total = max(one.seconds for one in workers)
    if not together:  # nor do they end together
        total = step * sum(line["step"] > warmup for lines in journals for line in lines) / count
    return TrialSample(count, words, step, total, means, parts)


def _in_step(journals: list[list[Line]], warmup: int, common: bool) -> list[_WorkerTimes]:
    """All steps after the warm-up, or those that all workers have in common."""
    after = [{line["step"] for line in lines if line["step"] > warmup} for lines in journals]
    found = []
    for lines, steps in zip(journals, after, strict=True):
        chosen = set.intersection(*after) if common else steps
        kept = [line for line in lines if line["step"] in chosen]
        before = [float(line["time"]) for line in lines if line["step"] <= warmup]
        if kept and before:
            found.append(_WorkerTimes(kept, before[-1]))
    return found if len(found) == len(journals) else []


def _in_time(journals: list[list[Line]], warmup: int) -> list[_WorkerTimes]:
    """What every worker did while all of them were past the warm-up and none had ended."""
    warm = max((float(line["time"]) for lines in journals for line in lines if line["step"] <= warmup), default=0.0)
    late = [[line for line in lines if line["time"] > warm] for lines in journals]
    end = min((float(lines[-1]["time"]) for lines in late if lines), default=0.0)
    found = []
    for lines, after in zip(journals, late, strict=True):
        kept = [line for line in after if line["time"] <= end]
        before = [float(line["time"]) for line in lines if line["time"] <= warm]
        if kept:
            found.append(_WorkerTimes(kept, before[-1] if before else warm))
    return found


def _of_the_last(workers: list[_WorkerTimes]) -> dict[str, float]:
    phases = {name: np.stack([one.column(name) for one in workers]) for name in PHASES}  # [workers, steps]
    last = phases["merge"].argmin(0)  # [steps]: whoever waited least came last
    here = np.arange(len(last))
    work = phases["forward"] + phases["backward"]
    fair = float(compare_work(work, last).fair.mean())
    parts = {name: float(phases[name][last, here].mean()) for name in ("input", "merge", "update")}
    return parts | {"work": fair, "imbalance": float(work[last, here].mean()) - fair}


def _of_all(workers: list[_WorkerTimes], means: dict[str, float]) -> dict[str, float]:
    """Where workers meet now and then, what the last one waits is the exchange. What the others wait more is because it has
    more to compute, or had to wait for input. Those that take shares as they come never wait for each other."""
    rows, meeting = _aligned(workers)
    phases = {name: np.array([[line["phases"][name] for line in row] for row in rows]) for name in PHASES}
    work = phases["forward"] + phases["backward"]  # [workers, steps]
    fair = float(compare_work(work, work.argmax(0)).fair.mean())
    parts = {name: means[name] for name in ("input", "merge", "update")}
    imbalance = means["forward"] + means["backward"] - fair
    if meeting:
        parts["merge"] = min(means["merge"], float(phases["merge"].min(0).mean()))
        by_input = (means["merge"] - parts["merge"]) * _fault_of_input(work, phases["input"])
        parts["input"] += by_input
        imbalance += means["merge"] - parts["merge"] - by_input
    return parts | {"work": fair, "imbalance": imbalance}


def _fault_of_input(work: Column, given: Column) -> float:
    """The part of the slowest worker's lateness for which its input is to blame."""
    slowest = int((work + given).mean(1).argmax())
    more_input, more_work = (max(0.0, float((one[slowest] - one.mean(0)).mean())) for one in (given, work))
    return more_input / (more_input + more_work) if more_input else 0.0


def _aligned(workers: list[_WorkerTimes]) -> tuple[list[list[Line]], bool]:
    """Lines of all workers side by side, and whether they are of the same steps."""
    by_step = [{line["step"]: line for line in one.lines} for one in workers]
    common = sorted(set.intersection(*(set(lines) for lines in by_step)))
    if common and not any("part" in line for one in workers for line in one.lines):
        return [[lines[step] for step in common] for lines in by_step], True
    shortest = min(len(one.lines) for one in workers)
    return [one.lines[:shortest] for one in workers], False
