"""How long a step takes."""

from dataclasses import dataclass

import numpy as np

from lockstep.explain.answer import Answer, Chart, Figure, make_figure
from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import count, milliseconds, number, plural, share
from lockstep.explain.measures.throughput import measure_watching, measure_words_per_second
from lockstep.explain.pages import charts
from lockstep.explain.reading.record import Record

QUESTION = "How long does an average step take?"


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step without warm-up."""

    mean: float
    median: float
    p95: float


def answer(evidence: Evidence) -> Answer:
    record, times = evidence.record, _measure(evidence.record)
    measured, steps = record.measured, record.primary.steps
    if times is None:
        reason = f"all {count(len(steps))} steps were warm-up" if len(steps) else "no step was taken"
        return Answer(QUESTION, "not measured", f"It was not measured: {reason}.", "unknown")
    mean, median, p95 = (milliseconds(value) for value in (times.mean, times.median, times.p95))
    text = (
        f"{mean} on average; half of the steps take less than {median}, 95 % less than {p95}. "
        f"{plural(measured.warmup, 'warm-up step')} at the start of launches "
        f"{'is' if measured.warmup == 1 else 'are'} not counted."
    )
    if record.last_launch.is_asynchronous:
        text += " Workers train asynchronously and take shares of a step: this is the time of one share."
    if times.p95 > 2 * times.median:
        text += " Some steps take more than twice the usual time: look for other programs on the machine."
    drawn = [_draw_histogram(record, times), _draw_course(record)]
    return Answer(QUESTION, mean, text, "plain", _list_figures(record, times), drawn)


def _measure(record: Record) -> StepTime | None:
    """Returns None when no step was measured."""
    measured = record.measured
    if not measured.count:
        return None
    workers = [measured.primary] if measured.lockstep else measured.workers.values()
    taken = np.concatenate([steps.seconds for steps in workers])
    return StepTime(float(taken.mean()), float(np.median(taken)), float(np.quantile(taken, 0.95)))


def _list_figures(record: Record, times: StepTime) -> list[Figure]:
    measured = record.measured
    who = "worker 0" if measured.lockstep or len(measured.workers) == 1 else f"all {len(measured.workers)} workers"
    figures = [
        make_figure(name, value, milliseconds, measured.describe(name, who))
        for name, value in (("mean", times.mean), ("median", times.median), ("95th percentile", times.p95))
    ]
    speed = measure_words_per_second(record) or 0.0
    figures.append(make_figure(f"{record.unit} per second", speed, count, measured.describe("sum", "all workers")))
    words = measured.primary.global_words[np.isfinite(measured.primary.global_words)]
    if len(words):
        figures.append(make_figure(f"{record.unit} per step", float(words.mean()), count, measured.describe("mean")))
    how = "clock, journal, TensorBoard, progress and sampling over the step time, worker 0"
    return [*figures, make_figure("watching", measure_watching(measured.primary, record.primary), share, how)]


def _draw_histogram(record: Record, times: StepTime) -> Chart:
    taken = record.measured.primary.seconds * 1e3
    marks = [
        (times.median * 1e3, f"median {number(times.median * 1e3)} ms"),
        (times.p95 * 1e3, f"95 % below {number(times.p95 * 1e3)} ms"),
    ]
    median, p95 = milliseconds(times.median), milliseconds(times.p95)
    description = f"Half of the steps take less than {median}, 95 % less than {p95}."
    title = "How long steps take"
    return charts.draw_histogram("step-times", title, description, taken, marks, "step time, ms", "steps")


def _draw_course(record: Record) -> Chart:
    steps = record.measured.primary
    x, y = charts.thin(steps.step, steps.seconds * 1e3, 120)
    description = f"Between {number(float(y.min()))} and {number(float(y.max()))} ms, as means of neighbouring steps."
    lines = [charts.Line("worker 0", x, y, "--blue")]
    title = "Step time over the run"
    return charts.draw_lines("step-time-course", title, description, lines, "step", "ms", zero=True)
