"""A run in figures, all from its journal and its checkpoints."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from lockstep.explain.arithmetic import Arithmetic, arithmetic
from lockstep.rundir import RunDirectory
from lockstep.watch.journal import Reading, read, read_together


@dataclass(frozen=True)
class Summary:
    """Figures of a run. Averages leave out the warm-up steps of every launch."""

    run: str
    state: str  # running, finished, stopped (by a signal, after saving) or cut off (killed: no farewell in the journal)
    ended: float | None  # when the last launch said farewell
    stop_signal: str | None
    step: int
    workers: int
    strategy: str
    precision: str
    measured_steps: int
    warmup_steps: int
    seconds_per_step: float | None
    words_per_second: float | None  # target words, all workers
    phase_shares: dict[str, float]
    watching_share: float | None  # time for clock, journal, TensorBoard, progress and sampler, as a share of the steps
    arithmetic: Arithmetic
    training_seconds: float
    evaluation_seconds: float
    checkpoint_seconds: float
    loss: float | None
    best_score: float | None
    best_step: int | None
    metric: str
    signature: str
    skipped_steps: int
    launches: int
    damaged_lines: int
    examples: list[list[str]]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarise(run: Path) -> Summary:
    journal = read_together(run / "journal")
    steps = journal.steps
    measured = [line for line in steps if not line["warmup"]]
    evaluations, launches, stops = journal.of("evaluation"), journal.of("run"), journal.of("stop")
    launch = launches[-1] if launches else {}
    metric = launch.get("metric", "loss")
    choose = max if launch.get("higher_is_better") else min
    everybody = [journal, *(read(run / "journal", rank) for rank in range(1, launch.get("workers", 1)))]
    reached = max((reading.steps[-1]["step"] for reading in everybody if reading.steps), default=0)
    standing = [line for line in evaluations if line["step"] <= reached]
    best = choose(standing, key=lambda line: line["scores"][metric], default=None)
    speed = _speed_of_all(everybody) if measured else None
    return Summary(
        run=str(run),
        state="running" if RunDirectory(run).busy() else _state(journal),
        ended=stops[-1]["time"] if stops else None,
        stop_signal=stops[-1]["signal"] if stops else None,
        step=reached,
        workers=launch.get("workers", 0),
        strategy=launch.get("strategy", ""),
        precision=launch.get("precision", ""),
        measured_steps=len(measured),
        warmup_steps=len(steps) - len(measured),
        seconds_per_step=mean(line["seconds"] for line in measured) if measured else None,
        words_per_second=speed,
        phase_shares=_shares(measured),
        watching_share=_watching(measured, journal) if measured else None,
        arithmetic=arithmetic(everybody, speed),
        training_seconds=sum(line["seconds"] for line in steps),
        evaluation_seconds=sum(line["seconds"] for line in evaluations),
        checkpoint_seconds=sum(line["seconds"] for line in journal.of("checkpoint")),
        loss=steps[-1]["loss"] if steps else None,
        best_score=best["scores"][metric] if best else None,
        best_step=best["step"] if best else None,
        metric=metric,
        signature=evaluations[-1]["signature"] if evaluations else "",
        skipped_steps=sum(1 for line in steps if not line["applied"]),
        launches=len({line["attempt"] for line in launches}),
        damaged_lines=journal.damaged,
        examples=evaluations[-1]["examples"] if evaluations else [],
    )


def _speed_of_all(everybody: list[Reading]) -> float:
    """Target words per second of all workers. Where they move together, every step line tells the words of all; where
    each goes its own way, their speeds are added."""
    if any(line.get("scope") == "worker" for line in everybody[0].steps):
        return sum(_speed(journal, lambda line: line["words"]["target"]) for journal in everybody)
    return _speed(everybody[0], lambda line: line["global_target_words"])


def _speed(journal: Reading, words: Callable[[dict[str, Any]], int]) -> float:
    measured = [line for line in journal.steps if not line["warmup"]]
    return sum(map(words, measured)) / max(1e-9, sum(line["seconds"] for line in measured))


def _state(journal: Reading) -> str:
    """From the last launch's farewell."""
    marks = [event for event in journal.events if event["kind"] in ("run", "stop")]
    if not marks or marks[-1]["kind"] == "run":
        return "cut off"
    return "stopped" if marks[-1]["reason"] == "signal" else "finished"


def _watching(measured: list[dict[str, Any]], journal: Reading) -> float:
    """The loop's own watching is between the steps, the sampler beside them."""
    samples = journal.of("system")
    beside = sum(line["own"] for line in samples) / sum(line["seconds"] for line in samples) if samples else 0.0
    return sum(line.get("watching", 0.0) for line in measured) / sum(line["seconds"] for line in measured) + beside


def _shares(steps: list[dict[str, Any]]) -> dict[str, float]:
    total = sum(line["seconds"] for line in steps)
    if not total:
        return {}
    return {name: sum(line["phases"][name] for line in steps) / total for name in steps[0]["phases"]}
