"""Whether a model is fully trained: a curve through the evaluations predicts what twice the steps would gain."""

import math
from dataclasses import dataclass

import numpy as np

from lockstep.explain.answer import TOO_EARLY
from lockstep.explain.formatting import count, score_title, state_count
from lockstep.explain.measures.curves import Curve, Estimate, fit_curve, fit_slope
from lockstep.explain.reading.json_access import get_dict
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column
from lockstep.run.best import Evaluation, find_best
from lockstep.run.standing import as_integer

TRAINED, LEARNING = "trained", "still learning"
WORTH_LOSS = 0.01
"""A predicted gain from twice the steps matters from this share of the loss on."""
WORTH_SCORE = 0.005
"""The same as a share of the score's scale: half a BLEU point, half a percent of accuracy."""
UNTAUGHT = 0.9
"""A model that gives all pieces or classes the same probability has a loss of ln(their number). Above this share of it,
nothing has been learned yet."""

FEW_EXAMPLES = 100
"""Scores of fewer sentences or images vary so much by chance that they decide nothing for sure."""


@dataclass(frozen=True)
class ScoreSeries:
    """One score over the evaluations. Gains are positive where the score improves."""

    name: str
    higher_is_better: bool
    steps: Column
    values: Column
    best: Evaluation | None
    worth: float  # the smallest gain that matters
    curve: Curve | None
    gain: Estimate | None  # predicted by the curve, for twice the steps
    recent_gain: Estimate | None  # of the last evaluations, per doubling of the steps
    left_out: int = 0  # evaluations during the warm-up

    @property
    def verdict(self) -> str:
        if self.gain is None or self.recent_gain is None:
            return TOO_EARLY
        smaller = min(self.gain.value, self.recent_gain.value)
        if smaller > self.worth and self.gain.low > 0 and (self.recent_gain.low > 0 or self.gain.low > self.worth):
            return LEARNING
        if smaller <= self.worth and min(self.gain.high, self.recent_gain.high) < 3 * self.worth:
            return TRAINED
        return TOO_EARLY


@dataclass(frozen=True)
class Convergence:
    """The verdict on how far a model is trained, and the curves that it follows from."""

    verdict: str
    reason: str
    loss: ScoreSeries
    score: ScoreSeries | None
    rate_spent: bool  # the learning rate has decayed to almost zero, so that more steps change nothing
    examples: int | None = None  # that every evaluation scores, where it is known
    noun: str = "sentence"

    @property
    def has_few_examples(self) -> bool:
        return self.examples is not None and self.examples < FEW_EXAMPLES


def judge_convergence(record: Record) -> Convergence:
    loss = _measure_series(record, "loss", higher=False)
    metric = record.metric if record.metric != "loss" else None
    score = _measure_series(record, metric, record.higher_is_better) if metric else None
    steps = record.primary.steps
    rates = steps.rate[np.isfinite(steps.rate)]
    spent = len(rates) > 1 and rates[-1] < 0.05 * rates.max()
    verdict, reason = _decide(record, loss, score)
    noun = "image" if record.unit == "images" else "sentence"
    return Convergence(verdict, reason, loss, score, bool(spent), _count_examples(record), noun)


def _count_examples(record: Record) -> int | None:
    scored = as_integer(record.evaluations[-1].get("scored")) if record.evaluations else None
    sets = get_dict(record.data.get("sets"))
    judged = get_dict(sets.get("validation") or sets.get("test"))
    return scored or as_integer(judged.get("lines")) or as_integer(judged.get("images"))


def _measure_series(record: Record, name: str, higher: bool) -> ScoreSeries:
    steps, values = record.scores(name)
    warmup = record.setting("schedule.warmup")
    after, evaluated = steps > (warmup if isinstance(warmup, int) else 0), len(steps)
    if after.sum() >= 5:
        steps, values = steps[after], values[after]
    best = find_best((one for one in record.list_evaluations(name) if one.step in steps), higher)
    sign = 1.0 if higher else -1.0
    if higher:
        scale = 100.0 if name == "sacrebleu" or (len(values) and values.max() > 1.5) else 1.0
        worth = WORTH_SCORE * scale
    else:
        scale, worth = math.inf, WORTH_LOSS * abs(float(values[-1])) if len(values) else 0.0
    curve, slope = fit_curve(steps, values, 0.0, scale), fit_slope(steps, values)
    gain = curve.predict_change().scale(sign) if curve else None
    recent = slope.scale(sign) if slope else None
    return ScoreSeries(name, higher, steps, values, best, worth, curve, gain, recent, evaluated - len(steps))


def _decide(record: Record, loss: ScoreSeries, score: ScoreSeries | None) -> tuple[str, str]:
    evaluations = len(record.evaluations)
    warmup = record.setting("schedule.warmup")
    outputs = _count_outputs(record)
    if evaluations and not len(loss.values):
        return TOO_EARLY, "the evaluations report no loss"
    if loss.curve is None or loss.recent_gain is None:
        return TOO_EARLY, f"{state_count(evaluations, 'evaluation')}, and a curve needs at least four"
    if isinstance(warmup, int) and record.last_step <= warmup:
        return TOO_EARLY, f"the learning rate was still in its warm-up of {count(warmup)} steps"
    if outputs and loss.values[-1] > UNTAUGHT * math.log(outputs):
        return TOO_EARLY, "the validation loss is still that of a random guess: nothing has been learned yet"
    if loss.verdict == TRAINED and score is not None and score.verdict == LEARNING:
        return LEARNING, f"the loss is flat, but {score_title(score.name)} still improves"
    if loss.verdict == TRAINED and loss.gain is not None and loss.gain.value < -loss.worth:
        best = count(loss.steps[int(loss.values.argmin())])
        return TRAINED, f"it is past its best: the validation loss was lowest at step {best}"
    reasons = {
        TRAINED: "twice as many steps would hardly change the validation loss",
        LEARNING: "the validation loss is still falling",
        TOO_EARLY: "the evaluations are too noisy or too few to tell a plateau from progress",
    }
    return loss.verdict, reasons[loss.verdict]


def _count_outputs(record: Record) -> int | None:
    """Returns the number of pieces or classes that the model chooses from, where it is known."""
    size, classes = get_dict(record.data.get("vocabulary")).get("size"), record.data.get("classes")
    if size:
        return size if isinstance(size, int) else None
    return len(classes) or None if isinstance(classes, list) else None
