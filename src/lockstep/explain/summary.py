"""A run in figures, all from its journal and its checkpoints."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.explain.arithmetic import Arithmetic, arithmetic
from lockstep.explain.reading.journal_file import took
from lockstep.explain.reading.record import Record, Worker
from lockstep.explain.reading.steps import PHASES, Steps
from lockstep.run.best import find_best


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
    way: str  # the strategy, with mode and number of servers
    asynchronous: bool  # workers take shares of a step one by one
    precision: str
    measured_steps: int
    warmup_steps: int
    seconds_per_step: float | None
    unit: str  # what is counted: target words, images
    words_per_second: float | None  # or images per second, as `unit` says; all workers
    phase_shares: dict[str, float]
    watching_share: float | None  # time for clock, journal, TensorBoard, progress and sampler, as a share of the steps
    arithmetic: Arithmetic
    training_seconds: float
    evaluation_seconds: float
    checkpoint_seconds: float
    loss: float | None
    best_score: float | None
    best_step: int | None
    last_score: float | None
    on_test: bool  # nothing was held out, so that scores during training are of the test set
    metric: str
    signature: str
    skipped_steps: int
    launches: int
    damaged_lines: int
    examples: list[list[str]]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarise(run: Path) -> Summary:
    return summary_of(Record(run))


def summary_of(record: Record) -> Summary:
    """Speed and phases are of the launches with the last setting (workers, strategy and the like): others are not
    comparable."""
    primary, measured = record.primary, record.measured_of({record.primary.rank: record.primary})
    steps, timed = primary.steps, measured.primary
    stops = primary.of("stop")
    evaluations = [one for one in record.evaluations_by(record.metric) if one.step <= record.reached]
    best = find_best(evaluations, record.higher_is_better)
    seconds = float(timed.seconds.sum())
    last_loss = float(steps.loss[-1]) if len(steps) else math.nan
    last = record.evaluations[-1] if record.evaluations else {}
    speed = words_per_second(record)
    return Summary(
        run=str(record.path),
        state=record.state,
        ended=stops[-1]["time"] if stops else None,
        stop_signal=stops[-1].get("signal") if stops else None,
        step=record.reached,
        workers=record.launch.get("workers", 0),
        strategy=record.launch.get("strategy", ""),
        way=record.last_launch.way,
        asynchronous=record.last_launch.asynchronous,
        precision=record.launch.get("precision", ""),
        measured_steps=measured.count,
        warmup_steps=measured.warmup,
        seconds_per_step=seconds / measured.count if measured.count else None,
        unit=record.unit,
        words_per_second=speed,
        phase_shares={name: float(getattr(timed, name).sum()) / seconds for name in PHASES} if seconds else {},
        watching_share=watching(timed, primary) if seconds else None,
        arithmetic=arithmetic(list(record.workers.values()), speed, record.unit, record.last_setting),
        training_seconds=float(steps.seconds.sum()),
        evaluation_seconds=_seconds(primary, "evaluation"),
        checkpoint_seconds=_seconds(primary, "checkpoint"),
        loss=last_loss if math.isfinite(last_loss) else None,
        best_score=None if best is None else best.score,
        best_step=None if best is None else best.step,
        last_score=evaluations[-1].score if evaluations else None,
        on_test=_on_test(record),
        metric=record.metric,
        signature=str(last.get("signature") or ""),
        skipped_steps=int((steps.applied == 0).sum()),
        launches=len(record.launches),
        damaged_lines=primary.damaged,
        examples=last.get("examples") or [],
    )


def words_per_second(record: Record) -> float | None:
    """Target words of all workers. Where they do not step together, it is what all did in the time of the one that was
    busy longest: one may have died early, or had no turn after its warm-up."""
    everybody = [steps for steps in record.measured.workers.values() if len(steps)]
    if not everybody:
        return None
    if all((steps.common == 1).all() for steps in everybody):
        return float(np.nansum(everybody[0].global_words) / everybody[0].seconds.sum())
    return float(
        sum(np.nansum(steps.target_words) for steps in everybody) / max(steps.seconds.sum() for steps in everybody)
    )


def _on_test(record: Record) -> bool:
    sets = record.data.get("sets")
    return isinstance(sets, dict) and "test" in sets and "validation" not in sets


def _seconds(worker: Worker, kind: str) -> float:
    return sum(took(line) for line in worker.of(kind))


def watching(timed: Steps, worker: Worker) -> float:
    """As a share of the step time. The loop's own watching is between the steps, the sampler beside them."""
    samples = worker.of("system")
    beside = sum(line.get("own", 0.0) for line in samples) / max(1e-9, sum(map(took, samples)))
    return float(np.nansum(timed.watching) / timed.seconds.sum()) + beside
