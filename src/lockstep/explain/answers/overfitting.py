"""Question 3: does the model memorize its training set instead of learning the task?"""

import math
from dataclasses import dataclass

import numpy as np

from lockstep.explain.answer import TOO_EARLY, Answer, Figure, Tone, missing, told
from lockstep.explain.answers.trained import WORTH_LOSS
from lockstep.explain.curves import noise, slope
from lockstep.explain.formatting import count, fine, number, share, there_are
from lockstep.explain.pages import charts
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column

QUESTION = "Was it overfitting?"
WIDER = 0.05
"""A gap that grows by less than this share of the loss, per doubling of the steps, does not count as growing."""
OVERFITTING, WIDENING, NOT_OVERFITTING = "overfitting", "the gap widens", "no overfitting"


@dataclass(frozen=True)
class Overfitting:
    """The answer to question 3 and what it rests on."""

    verdict: str
    reason: str
    steps: Column  # of the evaluations
    validation: Column
    training: Column  # mean training loss before each evaluation
    best: int | None  # place of the lowest validation loss
    rise: float  # of the validation loss since then, as a share of it
    passes: float | None  # times through the training text or images
    unit: str = "target words"

    @property
    def gap(self) -> Column:
        return self.validation - self.training


def training_loss(record: Record) -> tuple[Column, Column]:
    """Steps and the whole team's loss; where every worker has a loss of its own, the mean of those of a step."""
    steps = record.primary.steps
    if not len(steps) or (steps.common == 1).all():
        return steps.step, steps.loss
    numbers = np.concatenate([worker.steps.step for worker in record.workers.values()])
    losses = np.concatenate([worker.steps.loss for worker in record.workers.values()])
    known = np.isfinite(losses)
    unique, place = np.unique(numbers[known], return_inverse=True)
    return unique, np.bincount(place, losses[known]) / np.bincount(place)


def judge(record: Record) -> Overfitting:
    steps, validation = record.scores("loss")
    numbers, losses = training_loss(record)
    training = np.full(len(steps), math.nan)
    for place, step in enumerate(steps):
        before = steps[place - 1] if place else 0.0
        near = (numbers > max(before, step - max(20.0, (step - before) / 2))) & (numbers <= step) & np.isfinite(losses)
        if near.any():
            training[place] = losses[near].mean()
    train = ((record.data.get("sets") or {}).get("train")) or {}
    words = train.get("target_words", train.get("images"))
    seen = float(np.nansum(record.primary.steps.global_words))
    passes = seen / words if isinstance(words, int | float) and words and seen else None
    best = int(validation.argmin()) if len(validation) else None
    rise = _rise(validation, best)
    verdict, reason = _decide(steps, validation, training, best, rise, passes)
    if record.evaluations and not len(validation):
        verdict, reason = TOO_EARLY, "the evaluations report no loss"
    return Overfitting(verdict, reason, steps, validation, training, best, rise, passes, record.unit)


def _rise(validation: Column, best: int | None) -> float:
    """From the lowest value (as its neighbours see it) to the last ones, as a share of it."""
    if best is None or best >= len(validation) - 1:
        return 0.0
    low = float(np.median(validation[max(0, best - 1) : best + 2]))
    last = validation[best + 1 :][-3:]
    return float(np.median(last)) / low - 1.0 if low > 0 else 0.0


def _decide(
    steps: Column, validation: Column, training: Column, best: int | None, rise: float, passes: float | None
) -> tuple[str, str]:
    if best is None or len(validation) < 3:
        return TOO_EARLY, f"{there_are(len(validation), 'evaluation')}, and a trend needs three"
    scatter = noise(validation) / float(validation[best]) if validation[best] > 0 else 0.0
    fell = np.isfinite(training[best]) and training[-1] < training[best]
    if len(validation) - best > 2 and rise > max(0.02, 3 * scatter) and fell:
        return OVERFITTING, (
            f"the validation loss has risen by {share(rise)} since its best at step {count(steps[best])}, while the "
            f"training loss kept falling"
        )
    half = max(3, len(validation) // 2)
    known = np.isfinite(training)
    growth, trend = (slope(steps[known], one[known], half) for one in (validation - training, validation))
    scale = float(validation[best])
    if growth and trend and growth.low > 0 and growth.value > WIDER * scale and trend.value > -WORTH_LOSS * scale:
        return WIDENING, "the training loss falls, but the validation loss no longer does"
    if passes is not None and passes < 1:
        seen = f"only {share(passes)} of the training set was seen"
        return NOT_OVERFITTING, f"{seen}, so nothing could be memorized"
    return NOT_OVERFITTING, "the validation loss has not started to rise"


def answer(record: Record, found: Overfitting) -> Answer:
    tones: dict[str, Tone] = {OVERFITTING: "mind", WIDENING: "mind", NOT_OVERFITTING: "good"}
    text = f"{found.verdict.capitalize()}: {found.reason}."
    changed = any(record.setting(f"data.augment.{how}") for how in ("pad", "flip", "cutout"))
    known = {
        "label smoothing": record.setting("train.label_smoothing"),
        "dropout": record.setting("model.dropout"),
        "augmented images": changed and record.setting("data.images"),
    }
    causes = [name for name, value in known.items() if value and ":" not in str(record.setting("task"))]
    if causes:
        text += (
            f" The training loss is measured with {' and '.join(causes)}, the validation loss without: how the gap changes "
            f"matters, not its size."
        )
    tone = tones.get(found.verdict, "unknown")
    return Answer(3, QUESTION, found.verdict, text, tone, _figures(found), _charts(record, found))


def _figures(found: Overfitting) -> list[Figure]:
    figures: list[Figure] = []
    known = np.flatnonzero(np.isfinite(found.training))
    if len(known):
        (first, begin), (last, end) = ((int(place), count(found.steps[place])) for place in (known[0], known[-1]))
        how = "median of the last validation losses, up to three, against the lowest"
        figures = [
            told("training loss", float(found.training[last]), fine, f"mean of the steps before step {end}"),
            told("validation loss", float(found.validation[last]), fine, f"evaluation at step {end}"),
            told("gap", float(found.gap[last]), number, f"validation minus training loss, step {end}"),
            told("gap at the first evaluation", float(found.gap[first]), number, f"step {begin}"),
            told("rise since the best", found.rise, share, how),
        ]
    else:
        figures.append(missing("gap", "no evaluation in the journal has a loss"))
    if found.passes is not None:
        how = f"{found.unit} of all steps, divided by those of the training set"
        of = "text" if found.unit == "target words" else found.unit
        figures.append(told(f"passes through the {of}", found.passes, number, how))
    return figures


def _charts(record: Record, found: Overfitting) -> list[charts.Chart]:
    numbers, losses = training_loss(record)
    if not len(numbers) or not np.isfinite(losses).any():
        return []
    x, y = charts.thin(numbers, losses, 150)
    lines = [charts.Line("training", x, y, "--orange")]
    says = f"The training loss fell from {number(float(y[0]))} to {number(float(y[-1]))}."
    if len(found.steps):
        lines.append(charts.Line("validation", found.steps, found.validation, "--blue", markers=True))
        says += f" The validation loss was {number(float(found.validation[-1]))} at the end."
    title = "Training and validation loss"
    return [charts.lines("loss-gap", title, says, lines, "step", f"loss, nats per {found.unit[:-1]}")]
