"""Runs side by side: what differs between them first, then figures and curves on axes that can be compared."""

from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lockstep.explain.summary import Summary, summarise
from lockstep.files import read_json
from lockstep.settings import flat
from lockstep.watch.journal import Line, lines, read_together

AXES = {"step": "step", "words": "target words", "seconds": "seconds of training, pauses between launches left out"}
MOST_POINTS = 300
PLACES = ("data.folder", "data.corpus")
"""Where the text lies says nothing; its digest does."""


@dataclass(frozen=True)
class Curve:
    """Values along all three axes, point by point."""

    step: list[float] = field(default_factory=list)
    words: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def add(self, step: float, words: float, seconds: float, value: float) -> None:
        for axis, number in zip(
            (self.step, self.words, self.seconds, self.value), (step, words, seconds, value), strict=True
        ):
            axis.append(number)

    def thinned(self, most: int = MOST_POINTS) -> "Curve":
        """Means of neighbours, so that a long run does not make a large page."""
        size = -(-len(self.value) // most)
        if size <= 1:
            return self
        parts = range(0, len(self.value), size)
        axes = (self.step, self.words, self.seconds, self.value)
        return Curve(*([sum(axis[i : i + size]) / len(axis[i : i + size]) for i in parts] for axis in axes))

    def reached(self, score: float, higher_is_better: bool) -> tuple[float, float, float] | None:
        """Step, words and seconds of the first point that is as good."""
        for place, value in enumerate(self.value):
            if value >= score if higher_is_better else value <= score:
                return self.step[place], self.words[place], self.seconds[place]
        return None


@dataclass(frozen=True)
class Side:
    """One of the runs."""

    name: str
    summary: Summary
    settings: dict[str, Any]
    environment: dict[str, Any]  # machines, versions, data: by a name that a person understands
    curves: dict[str, Curve]  # training loss, and every score of the evaluations
    seconds: float  # of all launches, pauses between them left out
    words: float
    resident: int | None  # most memory of worker 0
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
    values: list[Any]  # one per run


@dataclass(frozen=True)
class Comparison:
    sides: list[Side]
    settings: list[Difference]
    environment: list[Difference]
    notes: list[str]  # what must be known before figures are compared
    target: float | None  # the best score that all reached
    reached: list[tuple[float, float, float] | None]  # when each did: step, words, seconds

    @property
    def metric(self) -> str:
        return self.sides[0].metric

    @property
    def shared(self) -> list[str]:
        """Curves that every run has."""
        first, *others = (side.curves for side in self.sides)
        return [name for name in first if all(name in side and side[name].value for side in (first, *others))]

    def as_dict(self) -> dict[str, Any]:
        facts = asdict(self)
        for side, known in zip(facts["sides"], self.sides, strict=True):
            side["summary"].pop("examples")
            side["curves"] = {name: asdict(curve.thinned()) for name, curve in known.curves.items()}
        axes = ("step", "words", "seconds")
        facts["reached"] = [None if place is None else dict(zip(axes, place, strict=True)) for place in self.reached]
        return facts | {"metric": self.metric}


def compare(runs: dict[str, Path]) -> Comparison:
    """`runs` by the names under which they are shown."""
    sides = [_side(name, path) for name, path in runs.items()]
    settings = _differing([side.settings for side in sides])
    environment = _differing([side.environment for side in sides])
    same_data = not any(one.what == "corpus" for one in environment)
    if same_data:
        settings = [one for one in settings if one.what not in PLACES]
    metric, higher = sides[0].metric, sides[0].higher_is_better
    scores = [side.curves[metric] for side in sides if side.metric == metric and metric in side.curves]
    target, reached = None, list[tuple[float, float, float] | None]()
    if len(scores) == len(sides):
        best = [(max if higher else min)(curve.value) for curve in scores]
        target = min(best) if higher else max(best)
        reached = [curve.reached(target, higher) for curve in scores]
    return Comparison(sides, settings, environment, _notes(sides, settings, environment), target, reached)


def _side(name: str, path: Path) -> Side:
    journal = read_together(path / "journal")
    clock = _Clock(path)
    summary = summarise(path)
    curves: dict[str, Curve] = {"training loss": Curve()}
    ends, words = list[int](), list[float]()
    total, reached = 0.0, 0
    for line in journal.steps:
        total += line["global_target_words"] * (
            line["step"] - reached
        )  # steps of other workers are as large as its own
        reached = line["step"]
        ends.append(reached)
        words.append(total)
        if line["loss"] is not None:
            curves["training loss"].add(line["step"], total, clock.seconds(line["time"]), line["loss"])
    for line in journal.of("evaluation"):
        place = bisect_right(ends, line["step"]) - 1
        if line["step"] > summary.step or place < 0:
            continue  # undone by a resume
        for score, value in line["scores"].items():
            curve = curves.setdefault(_curve_name(score), Curve())
            curve.add(line["step"], words[place], clock.seconds(line["time"]), value)
    residents = [line["process"]["resident"] for line in journal.of("system") if "process" in line]
    launch = (journal.of("run") or [{}])[-1]
    return Side(
        name,
        summary,
        _settings(path),
        _environment(path, launch),
        curves,
        clock.total,
        total,
        max(residents, default=None),
        bool(launch.get("higher_is_better")),
    )


class _Clock:
    """Time stamps as seconds of training: between two launches the clock stands still. A launch lasts from its first
    worker's first line to the last line of any."""

    def __init__(self, path: Path) -> None:
        spans: dict[int, tuple[float, float]] = {}
        for file in sorted((path / "journal").glob("worker-*.jsonl")):
            attempt = 0
            for line in lines(file):
                if line is None:
                    continue
                attempt = line.get("attempt", attempt) if line["kind"] == "run" else attempt
                begin, end = spans.get(attempt, (line["time"], line["time"]))
                spans[attempt] = min(begin, line["time"]), max(end, line["time"])
        self._begins: list[float] = []
        self._before: list[float] = []  # seconds until each launch
        self.total = 0.0
        for begin, end in sorted(spans.values()):
            self._begins.append(begin)
            self._before.append(self.total)
            self.total += end - begin

    def seconds(self, time: float) -> float:
        launch = max(0, bisect_right(self._begins, time) - 1)
        return self._before[launch] + time - self._begins[launch]


def _settings(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return flat(tree) if isinstance(tree, dict) else {}


def _environment(path: Path, launch: Line) -> dict[str, Any]:
    """What a run ran on. Workers and machines come first: they decide what times mean."""
    known, data = read_json(path / "environment.json") or {}, read_json(path / "data.json") or {}
    choices = read_json(path / "choices.json") or {}
    workers = [worker for worker in known.get("workers", []) if isinstance(worker, dict)]
    machines = dict.fromkeys(
        f"{one.get('host')}: {one.get('device_name')}, {one.get('cores')} cores" for one in workers
    )
    found: dict[str, Any] = {
        "workers": launch.get("workers"),
        "machines": "; ".join(machines),
        "strategy": launch.get("strategy"),
        "precision": launch.get("precision"),
        "threads per worker": launch.get("threads"),
        "batch": {name: value for name, value in choices.get("batch", {}).items() if value is not None},
        "corpus": str(data.get("digest", ""))[:12],
        "platform": known.get("platform"),
    }
    return found | dict(known.get("versions", {}))


def _differing(sides: list[dict[str, Any]]) -> list[Difference]:
    names = list(dict.fromkeys(name for side in sides for name in side))
    found = [Difference(name, [side.get(name) for side in sides]) for name in names]
    return [one for one in found if any(value != one.values[0] for value in one.values)]


def _notes(sides: list[Side], settings: list[Difference], environment: list[Difference]) -> list[str]:
    changed = {one.what: one.values for one in settings + environment}
    notes = []
    if "machines" in changed:
        notes.append("The runs used different machines: their times say as much of the machines as of the runs.")
    if "workers" in changed:
        counts = " and ".join(str(value) for value in changed["workers"])
        notes.append(f"They had {counts} workers: speeds are of all workers together.")
    if "batch" in changed:
        notes.append("A step is not the same amount of text in each: compare their learning by words.")
    if "corpus" in changed:
        notes.append("They learned from different corpora: losses and scores measure different things.")
    elif changed.keys() & {"train.label_smoothing", "data.vocabulary.size"}:
        notes.append("Training losses count different things (label smoothing, vocabulary): compare scores instead.")
    if len({side.metric for side in sides}) > 1:
        notes.append("They were judged by different scores.")
    return notes
