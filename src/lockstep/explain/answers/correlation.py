"""Question 11: whether long steps come from the exchange. The correlation first, then what it means."""

from dataclasses import dataclass

import numpy as np

from lockstep.explain.answer import Answer, Figure, missing, told
from lockstep.explain.answers.network import nothing_sent, travel
from lockstep.explain.bottleneck import count_hosts
from lockstep.explain.formatting import megabytes, number, share
from lockstep.explain.pages import charts
from lockstep.explain.reading.machines import Machines
from lockstep.explain.reading.measured_steps import MeasuredSteps
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column

QUESTION = "How does the step time correlate with the network use?"
FEWEST_STEPS = 10
DECIDES = 0.5
"""The exchange determines the step time when it accounts for this share of its variation."""


@dataclass(frozen=True)
class Correlation:
    """The linear relation of two columns: y is about start + slope * x."""

    pearson: float
    spearman: float
    start: float
    slope: float


def correlate(x: Column, y: Column) -> Correlation | None:
    """None when one of them does not vary or there is too little of them."""
    if len(x) < FEWEST_STEPS or np.ptp(x) <= 1e-9 * float(np.abs(x).max()) or np.ptp(y) == 0:
        return None
    of_x, of_y = (np.argsort(np.argsort(values)).astype(np.float64) for values in (x, y))
    slope = float(np.cov(x, y, bias=True)[0, 1] / x.var())
    start = float(y.mean() - slope * x.mean())
    return Correlation(float(np.corrcoef(x, y)[0, 1]), float(np.corrcoef(of_x, of_y)[0, 1]), start, slope)


def part_of_variation(part: Column, whole: Column) -> float:
    """The share of a sum's variance that one of its parts accounts for. Over all parts these shares add up to one."""
    return float(np.cov(part, whole, bias=True)[0, 1] / whole.var())


def answer(record: Record, seen: Machines) -> Answer:
    measured, unit = record.measured, record.unit
    if measured.count < FEWEST_STEPS:
        text = f"Too few steps: {measured.count} were measured, and a correlation needs {FEWEST_STEPS}."
        return Answer(11, QUESTION, "not measured", text, "unknown")
    steps = next(iter(measured.aligned.values())) if measured.lockstep else measured.primary
    took = steps.seconds * 1e3
    words = np.nan_to_num(steps.global_words if measured.lockstep else steps.target_words)
    by_words = correlate(words, took)
    if len(measured.workers) == 1 or not np.nan_to_num(steps.bytes_sent).any():
        return _alone(measured, words, took, by_words, unit)
    way = travel(measured) * 1e3
    by_way, by_bytes = correlate(way, took), correlate(np.nan_to_num(steps.bytes_sent), took)
    how = measured.how("correlation", "seconds of worker 0")
    if by_way is None:
        figures = [missing("with the time gradients travel", "it does not vary")]
        text, short = "Not at all: the time that gradients are in flight never changes.", "no correlation"
    else:
        waited = measured.stack("merge").min(0) if measured.lockstep else steps.merge
        part = part_of_variation(waited * 1e3, took)
        sums = part_of_variation(measured.stack("sums").min(0) * 1e3, took) if measured.lockstep else 0.0
        several = count_hosts(record) > 1
        text, short = _meaning(by_way, by_words, part, sums, unit, several), _r(by_way.pearson)
        covariance = "covariance of exposed exchange and step time over the variance of the step time"
        figures = [
            told(
                "with the time gradients travel",
                by_way.pearson,
                _r,
                f"Pearson's {how}, for the worker that waited least",
            ),
            told("the same by ranks", by_way.spearman, _r, f"Spearman's {how}"),
            told("the exchange's part of the variation", part, share, covariance),
            told("milliseconds more per one of travel", by_way.slope, number, "slope of the line in the chart"),
        ]
    if by_bytes is None:
        text += " Every step sends the same number of bytes, so the time that they are in flight is compared."
        size = megabytes(float(np.nan_to_num(steps.bytes_sent).mean()))
        figures.append(missing("with the bytes sent", f"every step sends the same {size}"))
    else:
        figures.append(told("with the bytes sent", by_bytes.pearson, _r, f"Pearson's {how}"))
    figures += [*_words(by_words, how, unit), *_interface(measured, seen)]
    straight, note = ((by_way.start, by_way.slope), short) if by_way else (None, "")
    says = f"Each dot is a step: the time its gradients were in flight against its duration. {text}"
    title, x_title = "Step time against the exchange", "time gradients are in flight, ms"
    chart = charts.dots("correlation", title, says, way, took, x_title, "step time, ms", straight, note)
    return Answer(11, QUESTION, short, text, "plain", figures, [chart])


def _r(value: float) -> str:
    return f"r = {round(value, 2) + 0.0:.2f}"  # without a minus before nothing


def _strength(r: float) -> str:
    size = abs(r)
    return "hardly" if size < 0.2 else "weakly" if size < 0.5 else "clearly" if size < 0.8 else "strongly"


def _meaning(
    way: Correlation, words: Correlation | None, part: float, sums: float, unit: str, several_hosts: bool
) -> str:
    r = way.pearson
    text = (
        f"The step time correlates {_strength(r)} with the time that gradients are in flight (r = {r:.2f}); the exchange "
        f"accounts for {share(max(0.0, part))} of its variation. "
    )
    if part >= DECIDES and sums > part / 2:
        return text + (
            f"Most of that, {share(sums)}, is synchronizing batch norm, where all workers wait for the slowest: sending "
            "fewer bytes would not make it shorter."
        )
    if part >= DECIDES:
        remedy = "a faster network or sending less" if several_hosts else "sending less"
        return text + f"Steps are long when the exchange is long: {remedy} makes them shorter."
    if words is not None and abs(words.pearson) > max(0.5, abs(r)):
        return text + f"Steps differ in their work: the {unit} in a step explain more (r = {words.pearson:.2f})."
    if r >= 0.5:
        return text + "Computing slows down in the same steps: something else slows both, such as another program."
    return text + "Slow steps have a cause other than the exchange."


def _alone(measured: MeasuredSteps, words: Column, took: Column, by_words: Correlation | None, unit: str) -> Answer:
    text = f"Not at all: {nothing_sent(measured)}, so no network was used."
    how = measured.how("correlation", "seconds of worker 0")
    straight, note = None, ""
    if by_words is not None:
        text += (
            f" The step time correlates {_strength(by_words.pearson)} with the {unit} in a step "
            f"(r = {by_words.pearson:.2f})."
        )
        straight, note = (by_words.start, by_words.slope), f"r = {by_words.pearson:.2f}"
    figures = [missing("with the time gradients travel", "nothing travels"), *_words(by_words, how, unit)]
    says = f"Each dot is a step: its {unit} against its duration. {text}"
    chart = charts.dots(
        "correlation",
        f"Step time against {unit}",
        says,
        words,
        took,
        f"{unit} in the step",
        "step time, ms",
        straight,
        note,
    )
    return Answer(11, QUESTION, "no network used", text, "plain", figures, [chart])


def _words(found: Correlation | None, how: str, unit: str) -> list[Figure]:
    if found is None:
        return [missing(f"with the {unit} of the step", "they do not vary")]
    return [Figure(f"with the {unit} of the step", f"r = {found.pearson:.2f}", f"Pearson's {how}", found.pearson)]


def _interface(measured: MeasuredSteps, seen: Machines) -> list[Figure]:
    """Intervals of the system samples: rate of the interface against the mean step time in the interval."""
    steps = measured.primary
    for host in seen.hosts.values():
        interface = host.busiest(seen.local)
        pairs = []
        for sample in interface.samples if interface else ():
            inside = (steps.time > sample.time - sample.seconds) & (steps.time <= sample.time)
            if inside.any():
                pairs.append((8 * sample.sent / sample.seconds, float(steps.seconds[inside].mean())))
        both = np.array(pairs).reshape(-1, 2)
        found = correlate(both[:, 0], both[:, 1])
        if interface and found:
            how = f"Pearson's correlation over {len(pairs)} system samples: rate sent against mean step time in each"
            return [
                Figure(
                    f"with the rate of {interface.name} on {host.name}", f"r = {found.pearson:.2f}", how, found.pearson
                )
            ]
    fewest = f"this needs {FEWEST_STEPS} system samples with steps in them, and a rate that varies"
    return [missing("with the interface's rate", fewest)]
