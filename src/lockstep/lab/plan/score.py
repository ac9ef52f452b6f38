"""How good predictions were: beside what was measured later, by a run or by a study."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from lockstep.config import read_yaml
from lockstep.errors import LockstepError
from lockstep.files import read_json
from lockstep.lab.plan.job import Choice
from lockstep.lab.plan.predict import PlanRow
from lockstep.run.journal import read


@dataclass(frozen=True)
class MeasuredSetting:
    """A setting that really ran."""

    workers: int
    strategy: str
    step_seconds: float
    gradients: str = "fp32"
    link: str | None = None  # None: not known by name
    accumulate: int = 1
    every: int | None = None
    servers: int = 0
    mode: str = "sync"
    link_bytes_per_second: float | None = None  # as its workers probed it
    origin: str = ""

    @property
    def word(self) -> str:
        """As `--strategies` takes it."""
        told = {"gradients": self.gradients} if self.gradients != "fp32" else {}
        if self.strategy in ("single", "replicas"):
            told = {}
        if self.strategy == "server":
            told = {"mode": self.mode} | ({"servers": str(self.servers)} if self.servers else {})
        if self.every is not None:
            told["every"] = str(self.every)
        return ":".join(
            [self.strategy.replace("single", "replicas"), *(f"{key}={value}" for key, value in told.items())]
        )


@dataclass(frozen=True)
class Score:
    """A prediction beside its measurement."""

    name: str
    workers: int
    link: str
    predicted: float
    low: float
    high: float
    measured: float
    origin: str = ""

    @property
    def error(self) -> float:
        """Of the prediction, as a share of what was measured."""
        return self.predicted / self.measured - 1

    @property
    def inside(self) -> bool:
        return self.low <= self.measured <= self.high

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"error": self.error, "inside": self.inside}


def measured(place: Path) -> list[MeasuredSetting]:
    """From a run's folder, or from a study's JSON file or folder."""
    if (place / "journal").is_dir():
        return [of_run(place)]
    files = [place] if place.is_file() else [place / "study.json"]
    facts = next((facts for file in files if (facts := read_json(file)) is not None), None)
    found = [one for line in _settings(facts) if (one := _setting(line, place.stem)) is not None]
    if not found:
        raise LockstepError(
            f"{place} is neither a run nor a study with measured steps.", "Name a run's folder or a study.", code=2
        )
    return found


def of_run(run: Path) -> MeasuredSetting:
    journal = read(run / "journal")
    last = journal.last_launch
    steps = [line for line in journal.steps if not line["warmup"] and last and line["attempt"] == last["attempt"]]
    if last is None or not steps:
        raise LockstepError(f"The run {run} has no steps beyond its warm-up.", "Train it for longer.", code=2)
    told = read_yaml(run / "config.yaml").get("strategy", {})
    strategy = last["strategy"]
    choices = read_json(run / "environment.json") or {}
    every = told.get("every") or choices.get("choices", {}).get("every")
    links = journal.of("link")
    return MeasuredSetting(
        workers=last["workers"],
        strategy=strategy,
        step_seconds=step_seconds(steps, every if strategy == "local" else None),
        gradients=told.get("gradients", "fp32"),
        every=every if strategy == "local" else None,
        servers=last.get("servers", 0),
        mode=told.get("mode", "sync") if strategy == "server" else "sync",
        link_bytes_per_second=links[-1]["probe_bits"] / 8 if links else None,
        origin=run.name,
    )


def step_seconds(steps: Sequence[dict[str, Any]], every: int | None = None) -> float:
    """The median; where workers meet every few steps, the mean over whole rounds."""
    if every is None:
        return median(line["seconds"] for line in steps)
    rounds = [line["seconds"] for line in steps if (line["step"] - 1) // every * every >= steps[0]["step"] - 1]
    whole = len(rounds) // every * every
    return fmean(rounds[:whole]) if whole else fmean(line["seconds"] for line in steps)


def _settings(facts: Any) -> list[Any]:
    """The list of settings: a plain one, or what a study has found, or the trials of one that is not finished."""
    if isinstance(facts, dict) and isinstance(facts.get("results"), dict):
        return _settings(facts["results"].get("rows"))
    if isinstance(facts, dict):
        facts = facts.get("settings") if isinstance(facts.get("settings"), list) else facts.get("trials")
    return facts if isinstance(facts, list) else []


def _setting(line: Any, origin: str) -> MeasuredSetting | None:
    """A line of a study (`cell` says what was run), or {workers, strategy, gradients, link, step_seconds}."""
    if not isinstance(line, dict):
        return None
    facts: dict[str, Any] = line | line.get("cell", {})
    seconds = facts.get("step_seconds", line.get("sample", line).get("step"))
    if facts.get("without", "nothing") != "nothing" or not isinstance(seconds, int | float) or seconds <= 0:
        return None
    if not (isinstance(facts.get("workers"), int) and isinstance(facts.get("strategy"), str)):
        return None
    try:
        choice = Choice.of("replicas" if facts["strategy"] in ("alone", "single") else facts["strategy"])
    except LockstepError:  # measured, and nothing that the planner predicts
        return MeasuredSetting(facts["workers"], facts["strategy"], seconds, link=facts.get("link"), origin=origin)
    told = {key: facts.get(key, getattr(choice, key)) for key in ("gradients", "accumulate", "servers", "mode")}
    every = facts.get("every", choice.every) if choice.strategy == "local" else None
    return MeasuredSetting(
        facts["workers"], choice.strategy, seconds, link=facts.get("link"), every=every, origin=origin, **told
    )


def contention(found: Sequence[MeasuredSetting]) -> dict[int, float]:
    """How many times slower replicas are together than one of them alone."""
    by_count = {one.workers: one.step_seconds for one in found if one.strategy == "replicas"}
    if 1 not in by_count or len(by_count) < 2:
        raise LockstepError("The study has no replicas and one worker alone.", "Measure with --strategies replicas.", 2)
    return {count: seconds / by_count[1] for count, seconds in sorted(by_count.items())}


def score(rows: Sequence[PlanRow], found: Sequence[MeasuredSetting]) -> tuple[list[Score], list[MeasuredSetting]]:
    """Predictions of the same settings, and the measurements that none was made for."""
    scores, missed = [], []
    for one in found:
        row = _prediction(rows, one)
        if row is None:
            missed.append(one)
        else:
            interval = (row.step_seconds, row.low, row.high)
            scores.append(Score(row.name, row.workers, row.link, *interval, one.step_seconds, one.origin))
    return scores, missed


def _prediction(rows: Sequence[PlanRow], one: MeasuredSetting) -> PlanRow | None:
    """Where the link's name is not known, that of the nearest rate."""
    same = [
        row
        for row in rows
        if (row.workers, row.strategy, row.servers, row.mode)
        == (one.workers, one.strategy.replace("single", "replicas"), one.servers, one.mode)
        and (row.strategy in ("server", "replicas") or row.gradients == one.gradients)
        and row.accumulate == one.accumulate
        and (row.strategy != "local" or one.every in (None, row.every))
        and (one.workers == 1 or one.link in (None, row.link))
    ]
    if one.link_bytes_per_second is None:
        return same[0] if same else None
    rate = one.link_bytes_per_second
    return min(same, key=lambda row: abs(row.link_bytes_per_second / rate - 1), default=None)


def summary(scores: Sequence[Score]) -> str:
    within = sum(abs(one.error) <= 0.15 for one in scores)
    inside = sum(one.inside for one in scores)
    middle = median(abs(one.error) for one in scores)
    return (
        f"{within} of {len(scores)} predictions are within 15 % of what was measured, {inside} within their interval; "
        f"the median error is {middle:.1%}."
    )
