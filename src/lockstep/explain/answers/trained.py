"""Question 2: is the model fully trained? A curve through the evaluations says what twice the steps would give."""

import math
from dataclasses import dataclass

import numpy as np

from lockstep.explain.answer import TOO_EARLY, Answer, Figure, Tone, missing, told
from lockstep.explain.curves import Curve, Estimate, fit, recent, slope
from lockstep.explain.formatting import count, fine, number, plural, share, shown, there_are
from lockstep.explain.pages import charts
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column
from lockstep.run.best import Evaluation, find_best

QUESTION = "Is the model fully trained?"
TRAINED, LEARNING = "trained", "still learning"
WORTH_LOSS = 0.01
"""A gain is worth having from this share of the loss on, for twice the steps."""
WORTH_SCORE = 0.005
"""The same as a share of the score's scale: half a BLEU point, half a percent of accuracy."""
UNTAUGHT = 0.9
"""A model that guesses all pieces or classes alike has a loss of ln(their number); above this share of it nothing is
learned yet."""


@dataclass(frozen=True)
class Series:
    """A score over the evaluations; gains are positive where it gets better."""

    name: str
    higher_is_better: bool
    steps: Column
    values: Column
    best: Evaluation | None
    worth: float
    curve: Curve | None
    gain: Estimate | None  # by the curve, for twice the steps
    lately: Estimate | None  # by the last evaluations, per doubling of the steps

    @property
    def verdict(self) -> str:
        if self.gain is None or self.lately is None:
            return TOO_EARLY
        smaller = min(self.gain.value, self.lately.value)
        if smaller > self.worth and self.gain.low > 0 and (self.lately.low > 0 or self.gain.low > self.worth):
            return LEARNING
        if smaller <= self.worth and min(self.gain.high, self.lately.high) < 3 * self.worth:
            return TRAINED
        return TOO_EARLY


@dataclass(frozen=True)
class Trained:
    """The answer to question 2 and what it rests on."""

    verdict: str
    reason: str
    loss: Series
    score: Series | None
    rate_spent: bool  # the learning rate has decayed to almost zero, so that more steps change nothing


def series(record: Record, name: str, higher: bool) -> Series:
    steps, values = record.scores(name)
    warmup = record.setting("schedule.warmup", 0)
    after = steps > (warmup if isinstance(warmup, int) else 0)
    if after.sum() >= 5:
        steps, values = steps[after], values[after]
    best = find_best((one for one in record.evaluations_by(name) if one.step in steps), higher)
    sign = 1.0 if higher else -1.0
    if higher:
        scale = 100.0 if name == "sacrebleu" or (len(values) and values.max() > 1.5) else 1.0
        worth = WORTH_SCORE * scale
    else:
        scale, worth = math.inf, WORTH_LOSS * abs(float(values[-1])) if len(values) else 0.0
    curve, lately = fit(steps, values, 0.0, scale), slope(steps, values)
    gain = curve.change().times(sign) if curve else None
    return Series(name, higher, steps, values, best, worth, curve, gain, lately.times(sign) if lately else None)


def judge(record: Record) -> Trained:
    loss = series(record, "loss", higher=False)
    scored = record.metric if record.metric != "loss" else None
    score = series(record, scored, record.higher_is_better) if scored else None
    steps = record.primary.steps
    rates = steps.rate[np.isfinite(steps.rate)]
    spent = len(rates) > 1 and rates[-1] < 0.05 * rates.max()
    verdict, reason = _decide(record, loss, score)
    return Trained(verdict, reason, loss, score, bool(spent))


def _decide(record: Record, loss: Series, score: Series | None) -> tuple[str, str]:
    evaluations = len(record.evaluations)
    warmup = record.setting("schedule.warmup", 0)
    pieces = (record.data.get("vocabulary") or {}).get("size") or len(record.data.get("classes") or []) or None
    if evaluations and not len(loss.values):
        return TOO_EARLY, "the evaluations report no loss"
    if loss.curve is None or loss.lately is None:
        return TOO_EARLY, f"{there_are(evaluations, 'evaluation')}, and a curve needs at least four"
    if isinstance(warmup, int) and record.reached <= warmup:
        return TOO_EARLY, f"the learning rate was still in its warm-up of {count(warmup)} steps"
    if isinstance(pieces, int) and loss.values[-1] > UNTAUGHT * math.log(pieces):
        return TOO_EARLY, "the validation loss is still that of a random guess: nothing has been learned yet"
    if loss.verdict == TRAINED and score is not None and score.verdict == LEARNING:
        return LEARNING, f"the loss is flat, but {shown(score.name)} still improves"
    if loss.verdict == TRAINED and loss.gain is not None and loss.gain.value < -loss.worth:
        best = count(loss.steps[int(loss.values.argmin())])
        return TRAINED, f"it is past its best: the validation loss was lowest at step {best}"
    reasons = {
        TRAINED: "twice as many steps would hardly change the validation loss",
        LEARNING: "the validation loss is still falling",
        TOO_EARLY: "the evaluations are too noisy or too few to tell a plateau from progress",
    }
    return loss.verdict, reasons[loss.verdict]


def _span(name: str, estimate: Estimate, how: str) -> Figure:
    low, value, high = (number(one, 2) for one in (estimate.low, estimate.value, estimate.high))
    return Figure(name, f"{value} (80 % interval {low} to {high})", how, estimate.value)


def answer(record: Record, found: Trained) -> Answer:
    loss, score = found.loss, found.score
    tones: dict[str, Tone] = {TRAINED: "good", LEARNING: "mind"}
    text = f"{found.verdict.capitalize()}: {found.reason}."
    relative = loss.gain.times(1 / float(loss.values[-1])) if loss.gain is not None and loss.values[-1] else None
    if relative is not None and loss.gain is not None and loss.gain.value > 0:
        text += (
            f" Twice as many steps are expected to lower the validation loss of {fine(float(loss.values[-1]))} by "
            f"{number(loss.gain.value, 2)} ({share(relative.value)}; 80 % interval {share(relative.low)} to "
            f"{share(relative.high)})."
        )
    elif relative is not None:
        text += f" Twice as many steps are expected to raise it by {share(-relative.value)}."
    if score is not None and score.gain is not None and score.gain.value > 0:
        text += f" {shown(score.name)} would gain about {number(score.gain.value, 2)}."
    if found.rate_spent and found.verdict != TOO_EARLY:
        text += (
            " The learning rate has decayed to almost zero, so continuing this run would change little: such a gain "
            "needs a new run with twice the train.steps."
        )
    figures = [figure for one in (loss, score) if one is not None for figure in _figures(one)]
    return Answer(
        2, QUESTION, found.verdict, text, tones.get(found.verdict, "unknown"), figures, _charts(found, record.unit)
    )


def _figures(one: Series) -> list[Figure]:
    evaluations = plural(len(one.values), "evaluation")
    if one.best is None:
        return [missing(f"validation {one.name}", "no evaluation in the journal has it")]
    at_best = f"at step {count(one.best.step)}, of {evaluations}"
    figures = [
        told(f"{one.name} at the last evaluation", float(one.values[-1]), fine, f"step {count(one.steps[-1])}"),
        told(f"best {one.name}", one.best.score, fine, at_best),
    ]
    name = f"gain of twice the steps, {one.name}"
    if one.gain is None or one.curve is None:
        figures.append(missing(name, f"a curve needs four evaluations, {there_are(len(one.values), 'evaluation')}"))
    else:
        sign = "+" if one.curve.drop >= 0 else "-"
        how = (
            f"curve {number(one.curve.limit)} {sign} {number(abs(one.curve.drop))} * (step / {count(one.curve.last)})^"
            f"-{number(one.curve.power, 2)} through the last of {evaluations}, interval by bootstrap"
        )
        figures.append(_span(name, one.gain, how))
    if one.lately is not None:
        how = f"straight line through the last {recent(len(one.values))} evaluations over log2(step)"
        figures.append(_span(f"gain per doubling lately, {one.name}", one.lately, how))
    return figures


def _charts(found: Trained, unit: str) -> list[charts.Chart]:
    both = ((found.loss, "--blue"), (found.score, "--green"))
    return [_chart(one, colour, unit) for one, colour in both if one is not None and len(one.values)]


def _chart(one: Series, colour: str, unit: str) -> charts.Chart:
    lines = [charts.Line("measured", one.steps, one.values, colour, markers=True, goes_on=one.curve is not None)]
    bands, marks = list[charts.Band](), list[tuple[float, str]]()
    name = shown(one.name)
    says = f"Validation {name} went from {number(float(one.values[0]))} to {number(float(one.values[-1]))}."
    if one.curve is not None:
        ahead = np.geomspace(max(one.steps[0], one.curve.last / 2), 2 * one.curve.last, 60)
        bands = [charts.Band(ahead, *one.curve.band(ahead), f"{colour}/0.18")]
        marks = [(float(one.steps[-1]), "now")]
        lines.append(charts.Line("expected", ahead, one.curve.at(ahead), colour, "dot"))
        says += f" At twice the steps {number(float(one.curve.at(ahead)[-1]))} is expected."
    scale = f"nats per {unit.removesuffix('s')}" if one.name == "loss" else name
    key = f"trained-{one.name.replace('_', '-').lower()}"
    return charts.lines(key, f"Validation {name}, and where it is heading", says, lines, "step", scale, bands, marks)
