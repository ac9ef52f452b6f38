"""Whether the model is fully trained, and what twice the steps would gain."""

import numpy as np

from lockstep.explain.answer import Answer, Chart, Figure, Tone, make_figure, make_missing_figure
from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import count, number, plural, precise, score_title, share, state_count
from lockstep.explain.measures.convergence import LEARNING, TRAINED, Convergence, ScoreSeries
from lockstep.explain.measures.curves import Curve, Estimate, count_recent
from lockstep.explain.pages import charts
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column
from lockstep.run.standing import as_integer

QUESTION = "Is the model fully trained?"


def answer(evidence: Evidence) -> Answer:
    convergence = evidence.convergence
    series = [one for one in (convergence.loss, convergence.score) if one is not None]
    figures = [figure for one in series for figure in _list_figures(one)]
    drawn = [
        _draw_series(one, colour, evidence.record.unit)
        for one, colour in zip(series, ("--blue", "--green"), strict=False)
        if len(one.values)
    ]
    tones: dict[str, Tone] = {TRAINED: "good", LEARNING: "mind"}
    tone = "plain" if convergence.has_few_examples else tones.get(convergence.verdict, "unknown")
    text = _write_text(convergence) + _describe_scoring(evidence.record, convergence)
    return Answer(QUESTION, convergence.verdict, text, tone, figures, drawn)


def _describe_scoring(record: Record, convergence: Convergence) -> str:
    """Says how many examples were scored, and what the scores leave out: examples beside a sample, and what is longer than
    search.max_words."""
    last = record.evaluations[-1] if record.evaluations else {}
    scored, available = as_integer(last.get("scored")), as_integer(last.get("available"))
    limited, text = as_integer(last.get("limited")), ""
    if scored is not None and available is not None and scored < available:
        text += f" The scores are those of {count(scored)} of the {count(available)} validation examples."
    elif convergence.examples is not None:
        text += f" Each evaluation scores {plural(convergence.examples, convergence.noun)}."
    if convergence.has_few_examples:
        text += " That is few: the verdict is not sure, because such scores vary by chance."
    if limited:
        text += (
            f" In the last evaluation search.max_words cut the translation or reference of {count(limited)} of them."
        )
    return text


def _write_text(convergence: Convergence) -> str:
    loss, score = convergence.loss, convergence.score
    text = f"{convergence.verdict.capitalize()}: {convergence.reason}."
    relative = loss.gain.scale(1 / float(loss.values[-1])) if loss.gain is not None and loss.values[-1] else None
    if relative is not None and loss.gain is not None and loss.gain.value > 0:
        text += (
            f" Twice as many steps are expected to lower the validation loss of {precise(float(loss.values[-1]))} by "
            f"{number(loss.gain.value, 2)} ({share(relative.value)}; 80 % interval {share(relative.low)} to "
            f"{share(relative.high)})."
        )
    elif relative is not None:
        text += f" Twice as many steps are expected to raise it by {share(-relative.value)}."
    if score is not None and score.gain is not None and score.gain.value > 0:
        text += f" {score_title(score.name)} would gain about {number(score.gain.value, 2)}."
    if convergence.rate_spent and convergence.verdict == TRAINED:
        text += " The learning rate has decayed to almost zero, so continuing this run would change little."
    elif convergence.rate_spent and convergence.verdict == LEARNING:
        text += (
            " The learning rate has decayed to almost zero, so continuing this run would change little: such a gain "
            "needs a new run with twice the train.steps."
        )
    return text


def _list_figures(series: ScoreSeries) -> list[Figure]:
    name, evaluations = series.name, plural(len(series.values), "evaluation")
    if series.left_out:
        evaluations += f" after the warm-up ({count(series.left_out)} during it left out)"
    if series.best is None:
        return [make_missing_figure(f"validation {name}", "no evaluation in the journal has it")]
    at_best = f"at step {count(series.best.step)}, of {evaluations}"
    at_last = f"step {count(series.steps[-1])}"
    figures = [
        make_figure(f"{name} at the last evaluation", float(series.values[-1]), precise, at_last),
        make_figure(f"best {name}", series.best.score, precise, at_best),
    ]
    gain_name, curve = f"gain of twice the steps, {name}", series.curve
    if series.gain is None or curve is None:
        reason = f"a curve needs four evaluations, {state_count(len(series.values), 'evaluation')}"
        figures.append(make_missing_figure(gain_name, reason))
    else:
        how = f"{_describe_curve(curve, series.values)} through the last of {evaluations}, interval by bootstrap"
        figures.append(_make_estimate_figure(gain_name, series.gain, how))
    if series.recent_gain is not None:
        how = f"straight line through the last {count_recent(len(series.values))} evaluations over log2(step)"
        figures.append(_make_estimate_figure(f"gain per doubling lately, {name}", series.recent_gain, how))
    return figures


def _describe_curve(curve: Curve, values: Column) -> str:
    """Returns the formula of a curve, unless its limit is further from the measured values than they are apart."""
    beyond = max(float(values.min()) - curve.limit, curve.limit - float(values.max()))
    if beyond > float(np.ptp(values)):
        return "power law (too early to say to which limit)"
    sign = "+" if curve.drop >= 0 else "-"
    decay = f"(step / {count(curve.last)})^-{number(curve.power, 2)}"
    return f"curve {number(curve.limit)} {sign} {number(abs(curve.drop))} * {decay}"


def _make_estimate_figure(name: str, estimate: Estimate, measured: str) -> Figure:
    low, value, high = (number(one, 2) for one in (estimate.low, estimate.value, estimate.high))
    return Figure(name, f"{value} (80 % interval {low} to {high})", measured, estimate.value)


def _draw_series(series: ScoreSeries, colour: str, unit: str) -> Chart:
    values, curve, name = series.values, series.curve, score_title(series.name)
    lines = [charts.Line("measured", series.steps, values, colour, markers=True, continued=curve is not None)]
    bands, marks = list[charts.Band](), list[tuple[float, str]]()
    description = f"Validation {name} went from {number(float(values[0]))} to {number(float(values[-1]))}."
    if curve is not None:
        ahead = np.geomspace(max(series.steps[0], curve.last / 2), 2 * curve.last, 60)
        bands = [charts.Band(ahead, *curve.interval_at(ahead), f"{colour}/0.18")]
        marks = [(float(series.steps[-1]), "now")]
        lines.append(charts.Line("expected", ahead, curve.at(ahead), colour, "dot"))
        description += f" At twice the steps {number(float(curve.at(ahead)[-1]))} is expected."
    scale = f"nats per {unit.removesuffix('s')}" if series.name == "loss" else name
    key, title = f"trained-{series.name.replace('_', '-').lower()}", f"Validation {name}, and where it is heading"
    return charts.draw_lines(key, title, description, lines, "step", scale, bands, marks)
