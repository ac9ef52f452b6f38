"""What one worker does in a step: measured by a short training, and stored as JSON to be used again."""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import NotRequired, Self, TypedDict

import numpy as np
from pydantic import JsonValue

from lockstep.config import strategy_setting
from lockstep.errors import LockstepError
from lockstep.explain.reading.steps import Column
from lockstep.files import read_json
from lockstep.lab.plan.overlap import ProfiledTensor
from lockstep.lab.trial import make_trial_settings, run_trial
from lockstep.run import environment_variables
from lockstep.run.journal import Line, read

STEPS = 25
"""Steps of the trial; the first five are warm-up."""


@dataclass(frozen=True)
class Point:
    """Median seconds of the measured steps with one size of batch."""

    words: float  # target words of a step
    forward: float
    backward: float
    update: float
    other: float  # waiting for input, and the time between phases
    error: float | None = None  # relative error, where it differs from that of the profile


@dataclass(frozen=True)
class ModelShape:
    """The tensors and the arithmetic of a model. A tensor is ready when its share of the backward arithmetic is done."""

    parameters: int
    flops_per_word: float
    forward_share: float  # of the arithmetic
    tensors: tuple[ProfiledTensor, ...]


class TensorFacts(TypedDict):
    name: str
    shape: list[int]
    ready: float


class PointFacts(TypedDict):
    words: float
    forward: float
    backward: float
    update: float
    other: float
    error: NotRequired[float | None]


class ProfileFacts(TypedDict):
    """A profile as it is stored."""

    lockstep: str
    parameters: int
    tensors: list[TensorFacts]
    flops_per_word: float | None
    points: list[PointFacts]
    spread: float
    error: float
    threads: int
    precision: str
    device: str
    unit: NotRequired[str]
    sums: NotRequired[list[int]]


@dataclass(frozen=True)
class Profile:
    """The profile of one worker. `tensors` are in the order of the model."""

    parameters: int
    tensors: tuple[ProfiledTensor, ...]
    flops_per_word: float | None
    points: tuple[Point, ...]  # in the order of their words
    spread: float  # relative spread of a step's seconds per word around the median; workers wait for the slowest
    error: float  # relative error of the medians
    threads: int
    precision: str
    device: str
    unit: str = "words"
    sums: tuple[int, ...] = ()  # bytes of each all-reduce in the middle of a step (batch norm)

    def compute_seconds(self, words: Column) -> tuple[Column, Column]:
        """Returns the seconds of forward and backward for other sizes of batch: on the line through the measured sizes, or
        in proportion if only one was measured."""
        low, high = self.points[0], self.points[-1]
        share = words / high.words
        if high.words == low.words:
            return share * high.forward, share * high.backward
        weight = (words - low.words) / (high.words - low.words)

        def interpolate(few: float, many: float) -> Column:
            return np.maximum(few + weight * (many - few), share * many / 2)  # a line that falls too fast is noise

        return interpolate(low.forward, high.forward), interpolate(low.backward, high.backward)

    def estimate_error(self, words: Column) -> Column:
        """Returns the relative error of the seconds for other sizes of batch."""
        errors = [self.error if point.error is None else point.error for point in self.points]
        return np.interp(words, [point.words for point in self.points], errors)

    def as_dict(self) -> dict[str, JsonValue]:
        return {"lockstep": "profile", **asdict(self)}

    @classmethod
    def from_dict(cls, facts: ProfileFacts) -> Self:
        tensors = (ProfiledTensor(one["name"], tuple(one["shape"]), one["ready"]) for one in facts["tensors"])
        return cls(
            parameters=facts["parameters"],
            tensors=tuple(tensors),
            flops_per_word=facts["flops_per_word"],
            points=tuple(Point(**point) for point in facts["points"]),
            spread=facts["spread"],
            error=facts["error"],
            threads=facts["threads"],
            precision=facts["precision"],
            device=facts["device"],
            unit=facts.get("unit", "words"),
            sums=tuple(facts.get("sums", ())),
        )


def load_profile(path: Path) -> Profile:
    facts: ProfileFacts | None = read_json(path)
    remedy = "Make one with `lockstep plan CONFIG --save-profile FILE`."
    if isinstance(facts, dict) and facts.get("unit") == "images" and "sums" not in facts:
        raise LockstepError(
            f"{path} was made by an earlier version and does not include the all-reduces of batch norm.", remedy, code=2
        )
    try:
        if facts is None or facts["lockstep"] != "profile":
            raise KeyError
        return Profile.from_dict(facts)
    except (KeyError, TypeError, AttributeError):
        problem = "does not exist" if facts is None else "is not a profile"
        raise LockstepError(f"{path} {problem}.", remedy, code=2) from None


def measure_profile(
    config: Path, settings: list[str], sizes: Sequence[Sequence[str]] = ((),), steps: int = STEPS
) -> Profile:
    """Trains for a few steps with one worker, once for each of `sizes` (settings of the batch), and returns its profile.
    Strategy settings are left out, because one worker has no strategy."""
    settings = [setting for setting in settings if strategy_setting(setting) is None]
    profiles = []
    with tempfile.TemporaryDirectory(prefix="lockstep-plan-") as folder, environment_variables.profiling():
        for number, size in enumerate(sizes):
            run = Path(folder) / str(number)
            run_trial(run, config, [*settings, *size, *make_trial_settings(steps), "strategy.name=auto"], 1)
            profiles.append(read_profile(run))
    profiles.sort(key=lambda profile: profile.points[0].words)
    points = tuple(profile.points[0] for profile in profiles)
    return replace(profiles[-1], points=points, spread=median(profile.spread for profile in profiles))


def read_profile(run: Path) -> Profile:
    """Reads the profile from the journal of a run of one worker that was started with LOCKSTEP_PROFILE=1."""
    journal = read(run / "journal")
    lines = [line for line in journal.steps if not line["warmup"]]
    profiles, models, launches = journal.of("profile"), journal.of("model"), journal.of("run")
    if not (lines and profiles and models and launches):
        raise LockstepError(
            f"The journal of {run} has no profile.", "Train at least a dozen steps with LOCKSTEP_PROFILE=1.", code=2
        )
    rates = np.array([(line["phases"]["forward"] + line["phases"]["backward"]) / _words(line) for line in lines])
    typical = float(np.median(rates))
    spread = 1.4826 * float(np.median(np.abs(rates - typical))) / typical
    backward = profiles[-1]["backward_seconds"]
    tensors = (
        ProfiledTensor(one["name"], tuple(one["shape"]), min(1.0, one["seconds"] / backward))
        for one in profiles[-1]["tensors"]
    )
    return Profile(
        parameters=models[-1]["parameters"],
        tensors=tuple(tensors),
        flops_per_word=models[-1]["flops_per_word"],
        points=(_make_point(lines),),
        spread=spread,
        error=1.25 * spread / math.sqrt(len(lines)),
        threads=launches[-1]["threads"],
        precision=launches[-1]["precision"],
        device="cpu",
        unit=launches[-1].get("unit", "words"),
        sums=tuple(profiles[-1]["sums"]),
    )


def _words(line: Line) -> float:
    return max(1.0, line["words"]["target"])


def _make_point(lines: list[Line]) -> Point:
    """Forward and backward grow with the words, which differ from step to step: their medians are of seconds per word."""
    words = float(np.mean([_words(line) for line in lines]))

    def phase_seconds(name: str) -> float:
        return words * float(np.median([line["phases"][name] / _words(line) for line in lines]))

    update = float(np.median([line["phases"]["update"] for line in lines]))
    forward, backward = phase_seconds("forward"), phase_seconds("backward")
    rest = [line["seconds"] - sum(line["phases"][name] for name in ("forward", "backward", "update")) for line in lines]
    return Point(words, forward, backward, update, max(0.0, float(np.median(rest))))
