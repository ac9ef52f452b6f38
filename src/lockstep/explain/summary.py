"""The figures of a run, from its journal."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import JsonValue

from lockstep.explain.measures.arithmetic import Arithmetic, measure_arithmetic
from lockstep.explain.measures.disturbance import measure_disturbance
from lockstep.explain.measures.throughput import measure_watching, measure_words_per_second
from lockstep.explain.reading.journal_file import get_seconds
from lockstep.explain.reading.record import Record, Worker
from lockstep.explain.reading.steps import PHASES
from lockstep.run.best import find_best


@dataclass(frozen=True)
class Summary:
    """Figures of a run. Averages leave out the warm-up steps of every launch."""

    run: str
    state: str  # running, finished, stopped (by a signal, after saving) or cut off (killed: no `stop` line)
    ended: float | None  # when the last launch stopped
    stop_signal: str | None
    is_time_over: bool  # train.max_hours stopped it
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
    others_share: float | None  # of the cores, used by other programs during the measured steps
    disturbance: str  # a sentence when that is enough to disturb the figures; otherwise empty
    arithmetic: Arithmetic
    training_seconds: float
    evaluation_seconds: float
    checkpoint_seconds: float
    loss: float | None
    best_score: float | None
    best_step: int | None
    last_score: float | None
    on_test: bool  # there is no validation set, so scores during training are of the test set
    metric: str
    signature: str
    skipped_steps: int
    launches: int
    damaged_lines: int
    examples: list[list[str]]

    def as_dict(self) -> dict[str, JsonValue]:
        return asdict(self)


def summarise(run: Path) -> Summary:
    return summarise_record(Record(run))


def summarise_record(record: Record) -> Summary:
    """Returns the figures of a run. Speed and phases cover the launches with the last setting (workers, strategy and so
    on), because others cannot be compared."""
    primary, measured = record.primary, record.select_measured({record.primary.rank: record.primary})
    steps, timed = primary.steps, measured.primary
    stops = primary.select_events("stop")
    evaluations = [one for one in record.list_evaluations(record.metric) if one.step <= record.last_step]
    best = find_best(evaluations, record.higher_is_better)
    seconds = float(timed.seconds.sum())
    last_loss = float(steps.loss[-1]) if len(steps) else math.nan
    last = record.evaluations[-1] if record.evaluations else {}
    speed, disturbance = measure_words_per_second(record), measure_disturbance(record)
    return Summary(
        run=str(record.path),
        state=record.state,
        ended=stops[-1]["time"] if stops else None,
        stop_signal=stops[-1].get("signal") if stops else None,
        is_time_over=bool(stops) and stops[-1].get("reason") == "max_hours",
        step=record.last_step,
        workers=record.run_line.get("workers", 0),
        strategy=record.run_line.get("strategy", ""),
        way=record.last_launch.strategy_text,
        asynchronous=record.last_launch.is_asynchronous,
        precision=record.run_line.get("precision", ""),
        measured_steps=measured.count,
        warmup_steps=measured.warmup,
        seconds_per_step=seconds / measured.count if measured.count else None,
        unit=record.unit,
        words_per_second=speed,
        phase_shares={name: float(getattr(timed, name).sum()) / seconds for name in PHASES} if seconds else {},
        watching_share=measure_watching(timed, primary) if seconds else None,
        others_share=disturbance.share,
        disturbance=disturbance.sentence(),
        arithmetic=measure_arithmetic(list(record.workers.values()), speed, record.unit, record.comparable_attempts),
        training_seconds=float(steps.seconds.sum()),
        evaluation_seconds=_sum_seconds(primary, "evaluation"),
        checkpoint_seconds=_sum_seconds(primary, "checkpoint"),
        loss=last_loss if math.isfinite(last_loss) else None,
        best_score=None if best is None else best.score,
        best_step=None if best is None else best.step,
        last_score=evaluations[-1].score if evaluations else None,
        on_test=_is_on_test(record),
        metric=record.metric,
        signature=str(last.get("signature") or ""),
        skipped_steps=int((steps.applied == 0).sum()),
        launches=len(record.launches),
        damaged_lines=primary.damaged,
        examples=last.get("examples") or [],
    )


def _is_on_test(record: Record) -> bool:
    sets = record.data.get("sets")
    return isinstance(sets, dict) and "test" in sets and "validation" not in sets


def _sum_seconds(worker: Worker, kind: str) -> float:
    return sum(get_seconds(line) for line in worker.select_events(kind))
