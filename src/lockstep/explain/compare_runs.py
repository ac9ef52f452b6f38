"""Compares runs: what differs between them, their figures, and their curves over steps, words and time."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from lockstep.explain.reading.json_access import get_dict
from lockstep.explain.reading.machines import read_machines
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column
from lockstep.explain.summary import Summary, summarise_record
from lockstep.settings import flat

MOST_POINTS = 300
PLACES = ("data.folder", "data.corpus", "data.images")
"""Settings that do not count as a difference when the digest of the data is the same."""


@dataclass(frozen=True)
class ComparedCurve:
    """A curve over three axes: every list has one entry per point."""

    step: list[float] = field(default_factory=list)
    words: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def add(self, step: float, words: float, seconds: float, value: float) -> None:
        for axis, number in zip(
            (self.step, self.words, self.seconds, self.value), (step, words, seconds, value), strict=True
        ):
            axis.append(number)

    def thin(self, most: int = MOST_POINTS) -> "ComparedCurve":
        """Returns at most `most` points, each the mean of neighbours, so that a long run does not make a large page."""
        size = -(-len(self.value) // most)
        if size <= 1:
            return self
        parts = range(0, len(self.value), size)
        axes = (self.step, self.words, self.seconds, self.value)
        return ComparedCurve(*([sum(axis[i : i + size]) / len(axis[i : i + size]) for i in parts] for axis in axes))

    def find_first(self, score: float, higher_is_better: bool) -> tuple[float, float, float] | None:
        """Returns step, words and seconds of the first point that is at least as good as the score."""
        for place, value in enumerate(self.value):
            if value >= score if higher_is_better else value <= score:
                return self.step[place], self.words[place], self.seconds[place]
        return None


@dataclass(frozen=True)
class ComparedRun:
    """One of the compared runs."""

    name: str
    summary: Summary
    settings: dict[str, JsonValue]
    environment: dict[str, JsonValue]  # machines, versions, data, by names for people
    curves: dict[str, ComparedCurve]  # training loss, and every score of the evaluations
    seconds: float  # of all launches, pauses between them left out
    words: float
    resident: float | None  # largest memory of worker 0, bytes
    higher_is_better: bool

    @property
    def metric(self) -> str:
        """The curve that decides which run is better."""
        return _curve_name(self.summary.metric)


def _curve_name(score: str) -> str:
    return "validation loss" if score == "loss" else score


@dataclass(frozen=True)
class Difference:
    what: str
    values: list[JsonValue]  # one per run


@dataclass(frozen=True)
class RunComparison:
    sides: list[ComparedRun]
    settings: list[Difference]
    environment: list[Difference]
    notes: list[str]  # warnings about figures that cannot be compared directly
    target: float | None  # the best score that all runs reached
    reached: list[tuple[float, float, float] | None]  # when each run reached it: step, words, seconds

    @property
    def metric(self) -> str:
        return self.sides[0].metric

    @property
    def axes(self) -> dict[str, str]:
        """Titles of the axes, by the names of the lists of a curve."""
        unit, seconds = self.sides[0].summary.unit, "seconds of training, pauses between launches left out"
        return {"step": "step", "words": unit, "seconds": seconds}

    @property
    def shared(self) -> list[str]:
        """Curves that every run has."""
        first, *others = (side.curves for side in self.sides)
        return [name for name in first if all(name in side and side[name].value for side in (first, *others))]

    def as_dict(self) -> dict[str, JsonValue]:
        """Returns the comparison for programs, with thinned curves."""
        facts = asdict(self)
        for side, known in zip(facts["sides"], self.sides, strict=True):
            side["summary"].pop("examples")
            side["curves"] = {name: asdict(curve.thin()) for name, curve in known.curves.items()}
        axes = ("step", "words", "seconds")
        facts["reached"] = [None if place is None else dict(zip(axes, place, strict=True)) for place in self.reached]
        return facts | {"metric": self.metric}


def compare(runs: dict[str, Path]) -> RunComparison:
    """Compares runs; the keys of `runs` are the names under which they are shown."""
    sides = [_read_side(name, path) for name, path in runs.items()]
    settings = _list_differences(_drop_ignored([side.settings for side in sides]))
    environment = _list_differences([side.environment for side in sides])
    same_data = not any(one.what == "corpus" for one in environment)
    if same_data:
        settings = [one for one in settings if one.what not in PLACES]
    metric, higher = sides[0].metric, sides[0].higher_is_better
    scores = [side.curves[metric] for side in sides if side.metric == metric and metric in side.curves]
    target, reached = None, list[tuple[float, float, float] | None]()
    if len(scores) == len(sides):
        best = [(max if higher else min)(curve.value) for curve in scores]
        target = min(best) if higher else max(best)
        reached = [curve.find_first(target, higher) for curve in scores]
    return RunComparison(sides, settings, environment, _list_notes(sides, settings, environment), target, reached)


def _read_side(name: str, path: Path) -> ComparedRun:
    record = Record(path)
    summary, steps = summarise_record(record), record.primary.steps
    clock = _Clock(record)
    # A worker may not take every step: the steps of the others count as having as many words as its own.
    words = np.cumsum(np.nan_to_num(steps.global_words) * np.diff(steps.step, prepend=0.0))
    known = np.isfinite(steps.loss)
    axes = (steps.step[known], words[known], clock.seconds(steps.time[known]), steps.loss[known])
    curves = {"training loss": ComparedCurve(*(axis.tolist() for axis in axes))}
    for line in record.evaluations:
        place = int(np.searchsorted(steps.step, line["step"], "right")) - 1
        if line["step"] > summary.step or place < 0:
            continue  # undone by a resume
        moment = float(clock.seconds(np.array([line["time"]]))[0])
        for score, value in line["scores"].items():
            curve = curves.setdefault(_curve_name(score), ComparedCurve())
            curve.add(line["step"], float(words[place]), moment, value)
    return ComparedRun(
        name,
        summary,
        flat(record.config),
        _describe_environment(record),
        curves,
        clock.total,
        float(words[-1]) if len(words) else 0.0,
        read_machines(record).resident.get(record.primary.rank),
        record.higher_is_better,
    )


class _Clock:
    """Converts time stamps to seconds of training. The time between two launches does not count."""

    def __init__(self, record: Record) -> None:
        spans = [(launch.begin, launch.end) for launch in record.launches] or [(0.0, 0.0)]
        self._begins = np.array([begin for begin, _ in spans])
        lengths = np.array([end - begin for begin, end in spans])
        self._before = np.cumsum(lengths) - lengths  # seconds until each launch
        self.total = float(lengths.sum())

    def seconds(self, times: Column) -> Column:
        launch = np.maximum(0, np.searchsorted(self._begins, times, "right") - 1)
        return self._before[launch] + times - self._begins[launch]


def _describe_environment(record: Record) -> dict[str, JsonValue]:
    """Returns what a run ran on. Workers and machines come first, because times depend on them."""
    known, launch = record.environment, record.run_line
    machines = dict.fromkeys(
        f"{worker.get('host')}: {worker.get('device_name')}, {worker.get('cores')} cores"
        for worker in record.environment_of_workers
    )
    batch = get_dict(record.choices.get("batch"))
    environment: dict[str, JsonValue] = {
        "workers": launch.get("workers"),
        "machines": "; ".join(machines),
        "strategy": launch.get("strategy"),
        "precision": launch.get("precision"),
        "threads per worker": launch.get("threads"),
        "batch": {name: value for name, value in batch.items() if value is not None},
        "corpus": str(record.data.get("digest", ""))[:12],
        "platform": known.get("platform"),
    }
    return environment | get_dict(known.get("versions"))


def _drop_ignored(sides: list[dict[str, JsonValue]]) -> list[dict[str, JsonValue]]:
    """Drops settings that had no effect: version 0.1.0 wrote those of all strategies into every config, and another run of
    the same strategy does not have them."""
    strategies = [side.get("strategy.name") for side in sides]
    effective = []
    for side, strategy in zip(sides, strategies, strict=True):
        same = [other for other, name in zip(sides, strategies, strict=True) if name == strategy]
        own = (key for key in side if not key.startswith("strategy.") or all(key in other for other in same))
        effective.append({key: side[key] for key in own})
    return effective


def _list_differences(sides: list[dict[str, JsonValue]]) -> list[Difference]:
    names = list(dict.fromkeys(name for side in sides for name in side))
    differences = [Difference(name, [side.get(name) for side in sides]) for name in names]
    return [one for one in differences if any(value != one.values[0] for value in one.values)]


def _list_notes(sides: list[ComparedRun], settings: list[Difference], environment: list[Difference]) -> list[str]:
    changed = {one.what: one.values for one in settings + environment}
    notes = [f"{side.name}: {side.summary.disturbance}" for side in sides if side.summary.disturbance]
    if "machines" in changed:
        notes.append("The runs used different machines: their times say as much of the machines as of the runs.")
    if "workers" in changed:
        counts = " and ".join(str(value) for value in changed["workers"])
        notes.append(f"They had {counts} workers: speeds are of all workers together.")
    if "batch" in changed:
        unit = sides[0].summary.unit
        what, unit = ("text", "words") if unit == "target words" else (unit, unit)
        notes.append(f"A step is not the same amount of {what} in each: compare their learning by {unit} (--by words).")
    if "corpus" in changed:
        notes.append("They learned from different corpora: losses and scores measure different things.")
    elif changed.keys() & {"train.label_smoothing", "data.vocabulary.size"}:
        notes.append("Training losses count different things (label smoothing, vocabulary): compare scores instead.")
    if len({side.metric for side in sides}) > 1:
        notes.append("They were judged by different scores.")
    return notes
