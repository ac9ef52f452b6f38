"""What one worker does in a step: measured by a short training, and kept as JSON so that it is measured once."""

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Self

import numpy as np

from lockstep.config import strategy_setting
from lockstep.errors import LockstepError
from lockstep.explain.reading.steps import Column
from lockstep.files import read_json
from lockstep.lab.plan.overlap import Tensor
from lockstep.lab.trial import Line, attempt
from lockstep.run.journal import read

STEPS = 25
"""Of the trial; the first five are warm-up."""
OFTEN = 10**9


@dataclass(frozen=True)
class Point:
    """Medians over the measured steps of one size of batch."""

    words: float  # target words of a step
    forward: float
    backward: float
    update: float
    other: float  # input that was waited for, and what lies between phases


@dataclass(frozen=True)
class Profile:
    """One worker alone. `tensors` are in the order of the model."""

    parameters: int
    tensors: tuple[Tensor, ...]
    flops_per_word: float | None
    points: tuple[Point, ...]  # from few words to many
    spread: float  # of a step's seconds per word around its median, as a share: what makes workers wait for each other
    error: float  # of the medians themselves, as a share
    threads: int
    precision: str
    device: str
    unit: str = "words"
    sums: tuple[int, ...] = ()  # bytes of each small sum at which all workers meet in the middle of a step (batch norm)

    def computing(self, words: Column) -> tuple[Column, Column]:
        """Seconds of forward and backward for other sizes of batch: on the line through the measured sizes, or in
        proportion when there is one."""
        low, high = self.points[0], self.points[-1]
        share = words / high.words
        if high.words == low.words:
            return share * high.forward, share * high.backward
        weight = (words - low.words) / (high.words - low.words)

        def between(few: float, many: float) -> Column:
            return np.maximum(few + weight * (many - few), share * many / 2)  # a line that falls too fast is noise

        return between(low.forward, high.forward), between(low.backward, high.backward)

    def as_dict(self) -> dict[str, Any]:
        return {"lockstep": "profile"} | asdict(self)

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Self:
        tensors = tuple(Tensor(one["name"], tuple(one["shape"]), one["ready"]) for one in facts["tensors"])
        points = tuple(Point(**point) for point in facts["points"])
        known = {key: value for key, value in facts.items() if key not in ("lockstep", "tensors", "points", "sums")}
        return cls(tensors=tensors, points=points, sums=tuple(facts.get("sums", ())), **known)


def load(path: Path) -> Profile:
    facts = read_json(path)
    if isinstance(facts, dict) and facts.get("unit") == "images" and "sums" not in facts:
        remedy = "Make it again with `lockstep plan CONFIG --save-profile FILE`."
        raise LockstepError(
            f"{path} is of an earlier version and does not know the sums of batch norm.", remedy, code=2
        )
    try:
        if facts is None or facts["lockstep"] != "profile":
            raise KeyError
        return Profile.of(facts)
    except (KeyError, TypeError, AttributeError):
        what = "does not exist" if facts is None else "is not a profile"
        raise LockstepError(f"{path} {what}.", "Make one with `lockstep plan CONFIG --save-profile FILE`.", 2) from None


def take(config: Path, settings: list[str], sizes: Sequence[Sequence[str]] = ((),), steps: int = STEPS) -> Profile:
    """Trains for a few steps with one worker, once for each of `sizes` (settings of the batch). One worker reads no
    strategy settings."""
    settings = [setting for setting in settings if strategy_setting(setting) is None]
    found = []
    with tempfile.TemporaryDirectory(prefix="lockstep-plan-") as folder, _asked("LOCKSTEP_PROFILE", "1"):
        for place, size in enumerate(sizes):
            run = Path(folder) / str(place)
            attempt(run, config, [*settings, *size, *short(steps), "strategy.name=auto"], 1)
            found.append(of_run(run))
    found.sort(key=lambda profile: profile.points[0].words)
    points = tuple(profile.points[0] for profile in found)
    return replace(found[-1], points=points, spread=median(one.spread for one in found))


def short(steps: int) -> list[str]:
    """Settings of a training that is only timed."""
    return [
        f"train.steps={steps}",
        "train.patience=null",
        *(f"train.{e}_every={OFTEN}" for e in ("evaluate", "checkpoint")),
    ]


def of_run(run: Path) -> Profile:
    """From the journal of a run of one worker that was started with LOCKSTEP_PROFILE=1."""
    journal = read(run / "journal")
    lines = [line for line in journal.steps if not line["warmup"]]
    profiles, models, launches = journal.of("profile"), journal.of("model"), journal.of("run")
    if not (lines and profiles and models and launches):
        raise LockstepError(
            f"{run} has no profile in its journal.", "It is there after a dozen steps with LOCKSTEP_PROFILE=1.", code=2
        )
    rates = np.array([(line["phases"]["forward"] + line["phases"]["backward"]) / _words(line) for line in lines])
    middle = float(np.median(rates))
    spread = 1.4826 * float(np.median(np.abs(rates - middle))) / middle
    whole = profiles[-1]["backward_seconds"]
    tensors = tuple(
        Tensor(one["name"], tuple(one["shape"]), min(1.0, one["seconds"] / whole)) for one in profiles[-1]["tensors"]
    )
    return Profile(
        parameters=models[-1]["parameters"],
        tensors=tensors,
        flops_per_word=models[-1]["flops_per_word"],
        points=(_point(lines),),
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


def _point(lines: list[Line]) -> Point:
    """Forward and backward grow with the words, which differ from step to step: medians of seconds per word."""
    words = float(np.mean([_words(line) for line in lines]))

    def phase(name: str) -> float:
        return words * float(np.median([line["phases"][name] / _words(line) for line in lines]))

    update = float(np.median([line["phases"]["update"] for line in lines]))
    forward, backward = phase("forward"), phase("backward")
    rest = [line["seconds"] - sum(line["phases"][name] for name in ("forward", "backward", "update")) for line in lines]
    return Point(words, forward, backward, update, max(0.0, float(np.median(rest))))


@contextmanager
def _asked(name: str, value: str) -> Iterator[None]:
    """An environment variable for the time of a trial."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
