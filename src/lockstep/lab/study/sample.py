"""What one trial of a study measured.

Speed is words per second of wall time, from the end of the warm-up to the last step; it does not depend on phases. The
parts of a step come from the phases of the workers. Where workers step together, the phases are those of the last
worker, as in the verdict of a report. Otherwise they are the mean over the workers, weighted by speed. The part `other`
is the rest of the step.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TypedDict

import numpy as np
from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.explain.measures.bottleneck import compare_work
from lockstep.explain.reading.steps import PHASES, Column
from lockstep.run.journal import Line

PARTS = ("input", "work", "imbalance", "merge", "update", "other")
"""Parts of a step. `work` is forward and backward of a fair share, `imbalance` what the last worker computes beyond it."""


class SampleFacts(TypedDict):
    """A sample as it is stored."""

    workers: int
    words_per_step: float
    step: float
    total: float
    phases: dict[str, float]
    parts: dict[str, float]


@dataclass(frozen=True)
class TrialSample:
    """Mean seconds of a step. Words are target words (or images)."""

    workers: int
    words_per_step: float  # of one worker
    step: float
    total: float  # seconds of all measured steps
    phases: dict[str, float]  # mean over the workers
    parts: dict[str, float]  # they add up to `step`

    @property
    def words_per_second(self) -> float:
        """The speed of all workers together."""
        return self.workers * self.words_per_step / self.step

    def scale_to(self, words: float) -> "TrialSample":
        """Returns the sample as if a worker had `words` words in a step."""
        factor = words / self.words_per_step
        phases = {name: factor * value for name, value in self.phases.items()}
        parts = {name: factor * value for name, value in self.parts.items()}
        return TrialSample(self.workers, words, factor * self.step, self.total, phases, parts)

    def as_dict(self) -> dict[str, JsonValue]:
        return {**asdict(self), "words_per_second": self.words_per_second}

    @classmethod
    def from_dict(cls, facts: SampleFacts) -> "TrialSample":
        words, step, total = facts["words_per_step"], facts["step"], facts["total"]
        return cls(facts["workers"], words, step, total, facts["phases"], facts["parts"])


def take_median(samples: Sequence[TrialSample]) -> TrialSample:
    """Returns the trial of median speed, or the mean of the two in the middle, so that its parts add up to its step."""
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
    """The measured step lines of a worker in the order of time, and the moment before the first of them."""

    lines: list[Line]
    start: float

    @property
    def seconds(self) -> float:
        return float(self.lines[-1]["time"]) - self.start

    @property
    def words(self) -> float:
        return float(sum(line["words"]["target"] for line in self.lines))

    def column(self, phase: str) -> Column:
        return np.array([line["phases"][phase] for line in self.lines])

    def mean(self, phase: str) -> float:
        return float(self.column(phase).mean())


def measure(steps: list[list[Line]], warmup: int, silent: bool = False) -> TrialSample:
    """Measures a trial from the step lines of every worker. With `silent` nothing was exchanged, so no worker waited."""
    count = len(steps)
    journals = [sorted(lines, key=lambda line: float(line["time"])) for lines in steps]
    together = count > 1 and not silent and all(line["scope"] == "global" for lines in journals for line in lines)
    workers = _select_by_step(journals, warmup, together) if together or silent else _select_by_time(journals, warmup)
    if not workers or min(one.seconds for one in workers) <= 0:
        raise LockstepError("A trial was too short to be measured.", "Raise --steps.")
    rate = sum(one.words / one.seconds for one in workers)
    words = sum(one.words for one in workers) / sum(len(one.lines) for one in workers)
    step = count * words / rate
    if together:
        means = {name: fmean(one.mean(name) for one in workers) for name in PHASES}
        parts = _divide_common_steps(workers)
    else:
        speeds = np.array([one.words / one.seconds for one in workers]) / rate
        weights = [
            float(speed) * words * len(one.lines) / one.words for speed, one in zip(speeds, workers, strict=True)
        ]
        means = {
            name: sum(weight * one.mean(name) for weight, one in zip(weights, workers, strict=True)) for name in PHASES
        }
        parts = _divide_own_steps(workers, means)
    parts["other"] = step - sum(parts.values())
    total = max(one.seconds for one in workers)
    if not together:  # the workers end at different times
        total = step * sum(line["step"] > warmup for lines in journals for line in lines) / count
    return TrialSample(count, words, step, total, means, parts)


def _select_by_step(journals: list[list[Line]], warmup: int, common: bool) -> list[_WorkerTimes]:
    """Selects all steps after the warm-up. With `common` only those that all workers have."""
    after = [{line["step"] for line in lines if line["step"] > warmup} for lines in journals]
    workers = []
    for lines, steps in zip(journals, after, strict=True):
        chosen = set.intersection(*after) if common else steps
        measured = [line for line in lines if line["step"] in chosen]
        before = [float(line["time"]) for line in lines if line["step"] <= warmup]
        if measured and before:
            workers.append(_WorkerTimes(measured, before[-1]))
    return workers if len(workers) == len(journals) else []


def _select_by_time(journals: list[list[Line]], warmup: int) -> list[_WorkerTimes]:
    """Selects the steps of every worker from the end of the last warm-up to the end of the first worker."""
    warm = max((float(line["time"]) for lines in journals for line in lines if line["step"] <= warmup), default=0.0)
    late = [[line for line in lines if line["time"] > warm] for lines in journals]
    end = min((float(lines[-1]["time"]) for lines in late if lines), default=0.0)
    workers = []
    for lines, after in zip(journals, late, strict=True):
        measured = [line for line in after if line["time"] <= end]
        before = [float(line["time"]) for line in lines if line["time"] <= warm]
        if measured:
            workers.append(_WorkerTimes(measured, before[-1] if before else warm))
    return workers


def _divide_common_steps(workers: list[_WorkerTimes]) -> dict[str, float]:
    """Divides the steps of workers that step together into parts: those of the last worker, which waited least."""
    phases = {name: np.stack([one.column(name) for one in workers]) for name in PHASES}  # [workers, steps]
    last = phases["merge"].argmin(0)  # [steps]
    here = np.arange(len(last))
    work = phases["forward"] + phases["backward"]
    fair = float(compare_work(work, last).fair.mean())
    parts = {name: float(phases[name][last, here].mean()) for name in ("input", "merge", "update")}
    return parts | {"work": fair, "imbalance": float(work[last, here].mean()) - fair}


def _divide_own_steps(workers: list[_WorkerTimes], means: dict[str, float]) -> dict[str, float]:
    """Divides the steps of workers that synchronize only now and then into parts. The waiting of the last worker is the
    exchange. The additional waiting of the others is imbalance, or input if the last worker had to wait for its input.
    Workers that take shares of a step as they come never wait for each other."""
    rows, synchronized = _align_lines(workers)
    phases = {name: np.array([[line["phases"][name] for line in row] for row in rows]) for name in PHASES}
    work = phases["forward"] + phases["backward"]  # [workers, steps]
    fair = float(compare_work(work, work.argmax(0)).fair.mean())
    parts = {name: means[name] for name in ("input", "merge", "update")}
    imbalance = means["forward"] + means["backward"] - fair
    if synchronized:
        parts["merge"] = min(means["merge"], float(phases["merge"].min(0).mean()))
        by_input = (means["merge"] - parts["merge"]) * _find_input_share(work, phases["input"])
        parts["input"] += by_input
        imbalance += means["merge"] - parts["merge"] - by_input
    return parts | {"work": fair, "imbalance": imbalance}


def _find_input_share(work: Column, input_seconds: Column) -> float:
    """Returns the share of the slowest worker's delay that its input has caused."""
    slowest = int((work + input_seconds).mean(1).argmax())
    more_input, more_work = (max(0.0, float((one[slowest] - one.mean(0)).mean())) for one in (input_seconds, work))
    return more_input / (more_input + more_work) if more_input else 0.0


def _align_lines(workers: list[_WorkerTimes]) -> tuple[list[list[Line]], bool]:
    """Returns equally many lines of all workers, and whether they are of the same steps."""
    by_step = [{line["step"]: line for line in one.lines} for one in workers]
    common = sorted(set.intersection(*(set(lines) for lines in by_step)))
    if common and not any("part" in line for one in workers for line in one.lines):
        return [[lines[step] for step in common] for lines in by_step], True
    shortest = min(len(one.lines) for one in workers)
    return [one.lines[:shortest] for one in workers], False
