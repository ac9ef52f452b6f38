"""Compares predictions with measurements of runs and studies."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median

from pydantic import JsonValue

from lockstep.config import read_yaml
from lockstep.errors import LockstepError
from lockstep.files import read_json, read_json_value
from lockstep.lab.plan.planned_job import Choice
from lockstep.lab.plan.predict import PlanRow
from lockstep.run.journal import Line, read


@dataclass(frozen=True)
class MeasuredSetting:
    """A setting that was trained, and the time of its steps."""

    workers: int
    strategy: str
    step_seconds: float
    gradients: str = "fp32"
    link: str | None = None  # None: the name is not known
    accumulate: int = 1
    every: int | None = None
    servers: int = 0
    mode: str = "sync"
    link_bytes_per_second: float | None = None  # from the probe of the workers
    origin: str = ""

    @property
    def strategy_option(self) -> str:
        """The strategy as `--strategies` reads it."""
        settings = {"gradients": self.gradients} if self.gradients != "fp32" else {}
        if self.strategy in ("single", "replicas"):
            settings = {}
        if self.strategy == "server":
            settings = {"mode": self.mode} | ({"servers": str(self.servers)} if self.servers else {})
        if self.every is not None:
            settings["every"] = str(self.every)
        name = self.strategy.replace("single", "replicas")
        return ":".join([name, *(f"{key}={value}" for key, value in settings.items())])


@dataclass(frozen=True)
class Score:
    """A prediction and the measurement of the same setting."""

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
        """The relative error of the prediction."""
        return self.predicted / self.measured - 1

    @property
    def is_inside(self) -> bool:
        """Whether the measurement lies inside of the interval of the prediction."""
        return self.low <= self.measured <= self.high

    def as_dict(self) -> dict[str, JsonValue]:
        return {**asdict(self), "error": self.error, "inside": self.is_inside}


def read_measurements(path: Path) -> list[MeasuredSetting]:
    """Reads the folder of a run, or the JSON file or the folder of a study."""
    if (path / "journal").is_dir():
        return [read_run(path)]
    facts: JsonValue = read_json_value(path if path.is_file() else path / "study.json")
    settings = [setting for entry in _list_entries(facts) if (setting := _read_setting(entry, path.stem)) is not None]
    if not settings:
        raise LockstepError(
            f"{path} is neither a run nor a study with measured steps.",
            "Name the folder of a run, or the folder or JSON file of a study.",
            code=2,
        )
    return settings


def read_run(run: Path) -> MeasuredSetting:
    journal = read(run / "journal")
    launch = journal.last_launch
    steps = [line for line in journal.steps if not line["warmup"] and launch and line["attempt"] == launch["attempt"]]
    if launch is None or not steps:
        raise LockstepError(f"The run {run} has no steps after its warm-up.", "Train it for more steps.", code=2)
    settings = read_yaml(run / "config.yaml").get("strategy", {})
    strategy = launch["strategy"]
    environment = read_json(run / "environment.json") or {}
    choices = environment.get("choices")
    every = settings.get("every") or (choices.get("every") if isinstance(choices, dict) else None)
    links = journal.of("link")
    return MeasuredSetting(
        workers=launch["workers"],
        strategy=strategy,
        step_seconds=average_step(steps, every if strategy == "local" else None),
        gradients=settings.get("gradients", "fp32"),
        every=every if strategy == "local" else None,
        servers=launch.get("servers", 0),
        mode=settings.get("mode", "sync") if strategy == "server" else "sync",
        link_bytes_per_second=links[-1]["probe_bits"] / 8 if links else None,
        origin=run.name,
    )


def average_step(steps: Sequence[Line], every: int | None = None) -> float:
    """Returns the median seconds of a step. With `every`, the steps between two synchronizations of `local`, it is the mean
    over complete rounds."""
    if every is None:
        return median(line["seconds"] for line in steps)
    rounds = [line["seconds"] for line in steps if (line["step"] - 1) // every * every >= steps[0]["step"] - 1]
    complete = len(rounds) // every * every
    return fmean(rounds[:complete]) if complete else fmean(line["seconds"] for line in steps)


def _list_entries(facts: JsonValue) -> list[JsonValue]:
    """Returns the entries of a plain list, the rows of a finished study, or the trials of an unfinished one."""
    if isinstance(facts, dict) and isinstance(results := facts.get("results"), dict):
        return _list_entries(results.get("rows"))
    if isinstance(facts, dict):
        facts = facts.get("settings") if isinstance(facts.get("settings"), list) else facts.get("trials")
    return facts if isinstance(facts, list) else []


def _read_setting(entry: JsonValue, origin: str) -> MeasuredSetting | None:
    """Reads a row of a study (with a `cell`), or {workers, strategy, gradients, link, step_seconds}. Returns None for an
    ablation or anything else."""
    if not isinstance(entry, dict):
        return None
    cell, sample = entry.get("cell", {}), entry.get("sample", entry)
    facts = entry | cell if isinstance(cell, dict) else entry
    seconds = facts.get("step_seconds", sample.get("step") if isinstance(sample, dict) else None)
    workers, strategy, link = facts.get("workers"), facts.get("strategy"), facts.get("link")
    if facts.get("without", "nothing") != "nothing" or not isinstance(seconds, int | float) or seconds <= 0:
        return None
    if not (isinstance(workers, int) and isinstance(strategy, str)):
        return None
    name = link if isinstance(link, str) else None
    try:
        choice = Choice.parse("replicas" if strategy in ("alone", "single") else strategy)
    except LockstepError:  # a strategy that the planner does not predict
        return MeasuredSetting(workers, strategy, seconds, link=name, origin=origin)
    return MeasuredSetting(
        workers,
        choice.strategy,
        seconds,
        gradients=str(facts.get("gradients", choice.gradients)),
        link=name,
        accumulate=_read_integer(facts, "accumulate", choice.accumulate),
        every=_read_integer(facts, "every", choice.every) if choice.strategy == "local" else None,
        servers=_read_integer(facts, "servers", choice.servers),
        mode=str(facts.get("mode", choice.mode)),
        origin=origin,
    )


def _read_integer(facts: dict[str, JsonValue], key: str, default: int) -> int:
    value = facts.get(key, default)
    return value if isinstance(value, int) else default


def measure_contention(settings: Sequence[MeasuredSetting]) -> dict[int, float]:
    """Returns how many times slower replicas are than one of them alone, by their number."""
    by_count = {setting.workers: setting.step_seconds for setting in settings if setting.strategy == "replicas"}
    if 1 not in by_count or len(by_count) < 2:
        raise LockstepError(
            "The study has no replicas, or not one worker alone.", "Measure them with --strategies replicas.", code=2
        )
    return {count: seconds / by_count[1] for count, seconds in sorted(by_count.items())}


def score(rows: Sequence[PlanRow], settings: Sequence[MeasuredSetting]) -> tuple[list[Score], list[MeasuredSetting]]:
    """Returns the scores, and the measurements without a prediction."""
    scores, missed = [], []
    for setting in settings:
        row = _find_prediction(rows, setting)
        if row is None:
            missed.append(setting)
        else:
            interval = (row.step_seconds, row.low, row.high)
            scores.append(Score(row.name, row.workers, row.link, *interval, setting.step_seconds, setting.origin))
    return scores, missed


def _find_prediction(rows: Sequence[PlanRow], setting: MeasuredSetting) -> PlanRow | None:
    """Returns the prediction for the same setting. Where only the rate of the link is known, the nearest rate counts."""
    same = [
        row
        for row in rows
        if (row.workers, row.strategy, row.servers, row.mode)
        == (setting.workers, setting.strategy.replace("single", "replicas"), setting.servers, setting.mode)
        and (row.strategy in ("server", "replicas") or row.gradients == setting.gradients)
        and row.accumulate == setting.accumulate
        and (row.strategy != "local" or setting.every in (None, row.every))
        and (setting.workers == 1 or setting.link in (None, row.link))
    ]
    if setting.link_bytes_per_second is None:
        return same[0] if same else None
    rate = setting.link_bytes_per_second
    return min(same, key=lambda row: abs(row.link_bytes_per_second / rate - 1), default=None)


def summarise_scores(scores: Sequence[Score]) -> str:
    within = sum(abs(one.error) <= 0.15 for one in scores)
    inside = sum(one.is_inside for one in scores)
    error = median(abs(one.error) for one in scores)
    return (
        f"{within} of {len(scores)} predictions are within 15 % of the measurement, {inside} of the measurements are "
        f"inside their interval. The median error is {error:.1%}."
    )
