"""Whether long steps come from the exchange: the correlation, and what it means."""

from dataclasses import dataclass

import numpy as np

from lockstep.explain.answer import Answer, Chart, Figure, make_figure, make_missing_figure
from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import megabytes, number, share
from lockstep.explain.measures.bottleneck import count_hosts
from lockstep.explain.measures.exchange_traffic import explain_no_traffic, measure_in_flight
from lockstep.explain.pages import charts
from lockstep.explain.reading.machines import Interface, Machines
from lockstep.explain.reading.measured_steps import MeasuredSteps
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column, Steps

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


@dataclass(frozen=True)
class StepColumns:
    """What is correlated: one value per step."""

    steps: Steps
    milliseconds: Column
    words: Column

    @property
    def bytes_sent(self) -> Column:
        return np.nan_to_num(self.steps.bytes_sent)


def answer(evidence: Evidence) -> Answer:
    record, measured = evidence.record, evidence.record.measured
    if measured.count < FEWEST_STEPS:
        text = f"Too few steps: {measured.count} were measured, and a correlation needs {FEWEST_STEPS}."
        return Answer(QUESTION, "not measured", text, "unknown")
    steps = next(iter(measured.aligned.values())) if measured.lockstep else measured.primary
    words = np.nan_to_num(steps.global_words if measured.lockstep else steps.target_words)
    columns = StepColumns(steps, steps.seconds * 1e3, words)
    by_words = correlate(words, columns.milliseconds)
    if len(measured.workers) == 1 or not columns.bytes_sent.any():
        return _answer_without_network(record, columns, by_words)
    return _answer_with_network(record, evidence.machines, columns, by_words)


def correlate(x: Column, y: Column) -> Correlation | None:
    """Returns None when one of the columns does not vary or has too few values."""
    if len(x) < FEWEST_STEPS or np.ptp(x) <= 1e-9 * float(np.abs(x).max()) or np.ptp(y) == 0:
        return None
    ranks_x, ranks_y = (np.argsort(np.argsort(values)).astype(np.float64) for values in (x, y))
    slope = float(np.cov(x, y, bias=True)[0, 1] / x.var())
    start = float(y.mean() - slope * x.mean())
    return Correlation(float(np.corrcoef(x, y)[0, 1]), float(np.corrcoef(ranks_x, ranks_y)[0, 1]), start, slope)


def explained_variation(part: Column, total: Column) -> float:
    """Returns the share of the variance of a sum that one of its parts accounts for. The shares of all parts add up to
    one."""
    return float(np.cov(part, total, bias=True)[0, 1] / total.var())


def _answer_with_network(
    record: Record, machines: Machines, columns: StepColumns, by_words: Correlation | None
) -> Answer:
    measured, taken = record.measured, columns.milliseconds
    in_flight = measure_in_flight(measured) * 1e3
    by_flight, by_bytes = correlate(in_flight, taken), correlate(columns.bytes_sent, taken)
    how = measured.describe("correlation", "seconds of worker 0")
    if by_flight is None:
        figures = [make_missing_figure("with the time gradients travel", "it does not vary")]
        text, short = "Not at all: the time that gradients are in flight never changes.", "no correlation"
    else:
        waited = measured.stack("merge").min(0) if measured.lockstep else columns.steps.merge
        part = explained_variation(waited * 1e3, taken)
        sums = explained_variation(measured.stack("sums").min(0) * 1e3, taken) if measured.lockstep else 0.0
        several = count_hosts(record) > 1
        text, short = _interpret(by_flight, by_words, part, sums, record.unit, several), _format_r(by_flight.pearson)
        figures = _list_flight_figures(by_flight, part, how)
    if by_bytes is None:
        text += " Every step sends the same number of bytes, so the time that they are in flight is compared."
        size = megabytes(float(columns.bytes_sent.mean()))
        figures.append(make_missing_figure("with the bytes sent", f"every step sends the same {size}"))
    else:
        figures.append(make_figure("with the bytes sent", by_bytes.pearson, _format_r, f"Pearson's {how}"))
    figures += [_make_words_figure(by_words, how, record.unit), _make_interface_figure(measured, machines)]
    description = f"Each dot is a step: the time its gradients were in flight against its duration. {text}"
    title, x_title = "Step time against the exchange", "time gradients are in flight, ms"
    chart = _draw(title, description, in_flight, taken, x_title, by_flight, short)
    return Answer(QUESTION, short, text, "plain", figures, [chart])


def _answer_without_network(record: Record, columns: StepColumns, by_words: Correlation | None) -> Answer:
    unit = record.unit
    text = f"Not at all: {explain_no_traffic(record.measured)}, so no network was used."
    how = record.measured.describe("correlation", "seconds of worker 0")
    note = ""
    if by_words is not None:
        strength, note = _describe_strength(by_words.pearson), f"r = {by_words.pearson:.2f}"
        text += f" The step time correlates {strength} with the {unit} in a step ({note})."
    figures = [
        make_missing_figure("with the time gradients travel", "nothing was sent"),
        _make_words_figure(by_words, how, unit),
    ]
    description = f"Each dot is a step: its {unit} against its duration. {text}"
    title, x_title = f"Step time against {unit}", f"{unit} in the step"
    chart = _draw(title, description, columns.words, columns.milliseconds, x_title, by_words, note)
    return Answer(QUESTION, "no network used", text, "plain", figures, [chart])


def _format_r(value: float) -> str:
    return f"r = {round(value, 2) + 0.0:.2f}"  # + 0.0 turns -0.00 into 0.00


def _describe_strength(r: float) -> str:
    size = abs(r)
    return "hardly" if size < 0.2 else "weakly" if size < 0.5 else "clearly" if size < 0.8 else "strongly"


def _interpret(
    flight: Correlation, words: Correlation | None, part: float, sums: float, unit: str, several_hosts: bool
) -> str:
    """Writes what the correlation means. `part` is the share of the variation that the exchange accounts for, and `sums`
    that of synchronizing batch norm."""
    r = flight.pearson
    text = (
        f"The step time correlates {_describe_strength(r)} with the time that gradients are in flight (r = {r:.2f}); the "
        f"exchange accounts for {share(max(0.0, part))} of its variation. "
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


def _list_flight_figures(flight: Correlation, part: float, how: str) -> list[Figure]:
    covariance = "covariance of exposed exchange and step time over the variance of the step time"
    pearson = f"Pearson's {how}, for the worker that waited least"
    return [
        make_figure("with the time gradients travel", flight.pearson, _format_r, pearson),
        make_figure("the same by ranks", flight.spearman, _format_r, f"Spearman's {how}"),
        make_figure("the exchange's part of the variation", part, share, covariance),
        make_figure(
            "milliseconds of a step per millisecond of travel", flight.slope, number, "slope of the line in the chart"
        ),
    ]


def _make_words_figure(words: Correlation | None, how: str, unit: str) -> Figure:
    if words is None:
        return make_missing_figure(f"with the {unit} of the step", "they do not vary")
    return Figure(f"with the {unit} of the step", f"r = {words.pearson:.2f}", f"Pearson's {how}", words.pearson)


def _make_interface_figure(measured: MeasuredSteps, machines: Machines) -> Figure:
    """Correlates the rate of an interface in the intervals of the system samples with the mean step time there."""
    for host in machines.hosts.values():
        interface = host.find_busiest(machines.local)
        if interface is None:
            continue
        pairs = _pair_samples(measured.primary, interface)
        correlation = correlate(pairs[:, 0], pairs[:, 1])
        if correlation:
            how = f"Pearson's correlation over {len(pairs)} system samples: rate sent against mean step time in each"
            name = f"with the rate of {interface.name} on {host.name}"
            return Figure(name, f"r = {correlation.pearson:.2f}", how, correlation.pearson)
    reason = f"this needs {FEWEST_STEPS} system samples with steps in them, and a rate that varies"
    return make_missing_figure("with the interface's rate", reason)


def _pair_samples(steps: Steps, interface: Interface) -> Column:
    """Returns (bits per second, mean step seconds) of the samples that have steps in their interval, [samples, 2]."""
    pairs, order = [], np.argsort(steps.time, kind="stable")
    moments, seconds = steps.time[order], steps.seconds
    for sample in interface.samples:
        first, end = np.searchsorted(moments, (sample.time - sample.seconds, sample.time), "right")
        if first < end:
            inside = seconds[np.sort(order[first:end])]
            pairs.append((8 * sample.sent / sample.seconds, float(inside.mean())))
    return np.array(pairs, np.float64).reshape(-1, 2)


def _draw(
    title: str, description: str, x: Column, taken: Column, x_title: str, line: Correlation | None, note: str
) -> Chart:
    straight = (line.start, line.slope) if line else None
    label = note if line else ""
    return charts.draw_scatter("correlation", title, description, x, taken, x_title, "step time, ms", straight, label)
