"""Question 10: how long a step takes."""

from dataclasses import dataclass

import numpy as np

from lockstep.explain.answer import Answer, Figure, told
from lockstep.explain.formatting import count, milliseconds, number, plural, share
from lockstep.explain.pages import charts
from lockstep.explain.reading.record import Record
from lockstep.explain.summary import watching, words_per_second

QUESTION = "How long does an average step take?"


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step without warm-up."""

    mean: float
    median: float
    p95: float
    words_per_second: float


def measure(record: Record) -> StepTime | None:
    measured = record.measured
    if not measured.count:
        return None
    taken = (
        measured.primary.seconds
        if measured.lockstep
        else np.concatenate([s.seconds for s in measured.workers.values()])
    )
    rate = words_per_second(record) or 0.0
    return StepTime(float(taken.mean()), float(np.median(taken)), float(np.quantile(taken, 0.95)), rate)


def answer(record: Record, found: StepTime | None) -> Answer:
    measured, steps = record.measured, record.primary.steps
    if found is None:
        only = f"all {count(len(steps))} steps were warm-up" if len(steps) else "no step was taken"
        return Answer(10, QUESTION, "not measured", f"It was not measured: {only}.", "unknown")
    text = (
        f"{milliseconds(found.mean)} on average; half of the steps take less than {milliseconds(found.median)}, 95 % less "
        f"than {milliseconds(found.p95)}. {plural(measured.warmup, 'warm-up step')} at the start of launches "
        f"{'is' if measured.warmup == 1 else 'are'} not counted."
    )
    if record.last_launch.asynchronous:
        text += " Workers train asynchronously and take shares of a step: this is the time of one share."
    if found.p95 > 2 * found.median:
        text += " Some steps take more than twice the usual time: look for other programs on the machine."
    figures = _figures(record, found)
    return Answer(10, QUESTION, milliseconds(found.mean), text, "plain", figures, _charts(record, found))


def _figures(record: Record, found: StepTime) -> list[Figure]:
    measured = record.measured
    who = "worker 0" if measured.lockstep or len(measured.workers) == 1 else f"all {len(measured.workers)} workers"
    figures = [
        told(name, value, milliseconds, measured.how(name, who))
        for name, value in (("mean", found.mean), ("median", found.median), ("95th percentile", found.p95))
    ]
    how = measured.how("sum", "all workers")
    figures.append(told(f"{record.unit} per second", found.words_per_second, count, how))
    words = measured.primary.global_words[np.isfinite(measured.primary.global_words)]
    if len(words):
        figures.append(told(f"{record.unit} per step", float(words.mean()), count, measured.how("mean")))
    how = "clock, journal, TensorBoard, progress and sampling over the step time, worker 0"
    return [*figures, told("watching", watching(measured.primary, record.primary), share, how)]


def _charts(record: Record, found: StepTime) -> list[charts.Chart]:
    measured = record.measured
    taken = measured.primary.seconds * 1e3
    marks = [
        (found.median * 1e3, f"median {number(found.median * 1e3)} ms"),
        (found.p95 * 1e3, f"95 % below {number(found.p95 * 1e3)} ms"),
    ]
    says = f"Half of the steps take less than {milliseconds(found.median)}, 95 % less than {milliseconds(found.p95)}."
    spread = charts.spread("step-times", "How long steps take", says, taken, marks, "step time, ms", "steps")
    x, y = charts.thin(measured.primary.step, taken, 120)
    says = f"Between {number(float(y.min()))} and {number(float(y.max()))} ms, as means of neighbouring steps."
    line = charts.Line("worker 0", x, y, "--blue")
    title = "Step time over the run"
    return [spread, charts.lines("step-time-course", title, says, [line], "step", "ms", zero=True)]
