"""Whether a model memorizes its training set: the gap between validation and training loss over the run."""

import math
from dataclasses import dataclass

import numpy as np

from lockstep.explain.answer import TOO_EARLY
from lockstep.explain.formatting import count, share, state_count
from lockstep.explain.measures.convergence import WORTH_LOSS
from lockstep.explain.measures.curves import estimate_scatter, fit_slope
from lockstep.explain.reading.json_access import get_dict
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column

WIDER = 0.05
"""A gap counts as growing when it grows by this share of the loss per doubling of the steps."""
OVERFITTING, WIDENING, NOT_OVERFITTING = "overfitting", "the gap widens", "no overfitting"


@dataclass(frozen=True)
class LossGap:
    """The verdict on overfitting, and the losses that it follows from."""

    verdict: str
    reason: str
    steps: Column  # of the evaluations
    validation: Column
    training: Column  # mean training loss before each evaluation
    best: int | None  # index of the lowest validation loss
    rise: float  # of the validation loss since then, as a share of it
    passes: float | None  # times through the training text or images
    unit: str = "target words"

    @property
    def gap(self) -> Column:
        return self.validation - self.training


def measure_training_loss(record: Record) -> tuple[Column, Column]:
    """Returns steps and the loss of all workers. Where every worker has its own loss, this is the mean of each step."""
    steps = record.primary.steps
    if not len(steps) or steps.is_global:
        return steps.step, steps.loss
    numbers = np.concatenate([worker.steps.step for worker in record.workers.values()])
    losses = np.concatenate([worker.steps.loss for worker in record.workers.values()])
    known = np.isfinite(losses)
    unique, place = np.unique(numbers[known], return_inverse=True)
    return unique, np.bincount(place, losses[known]) / np.bincount(place)


def judge_overfitting(record: Record) -> LossGap:
    steps, validation = record.scores("loss")
    training = _average_before(steps, *measure_training_loss(record))
    train = get_dict(get_dict(record.data.get("sets")).get("train"))
    words = train.get("target_words", train.get("images"))
    seen = float(np.nansum(record.primary.steps.global_words))
    passes = seen / words if isinstance(words, int | float) and words and seen else None
    best = int(validation.argmin()) if len(validation) else None
    rise = _measure_rise(validation, best)
    verdict, reason = _decide(steps, validation, training, best, rise, passes)
    if record.evaluations and not len(validation):
        verdict, reason = TOO_EARLY, "the evaluations report no loss"
    return LossGap(verdict, reason, steps, validation, training, best, rise, passes, record.unit)


def _average_before(evaluated: Column, steps: Column, losses: Column) -> Column:
    """Returns the mean training loss of the steps before each evaluation: at least 20 steps, or half of the steps since the
    evaluation before. `steps` are in order."""
    means = np.full(len(evaluated), math.nan)
    for place, step in enumerate(evaluated):
        before = evaluated[place - 1] if place else 0.0
        after = max(before, step - max(20.0, (step - before) / 2))
        near = losses[slice(*np.searchsorted(steps, (after, step), "right"))]
        if np.isfinite(near).any():
            means[place] = near[np.isfinite(near)].mean()
    return means


def _measure_rise(validation: Column, best: int | None) -> float:
    """Returns the rise from the lowest loss to the last losses, as a share of it. Both are medians of neighbours."""
    if best is None or best >= len(validation) - 1:
        return 0.0
    low = float(np.median(validation[max(0, best - 1) : best + 2]))
    last = validation[best + 1 :][-3:]
    return float(np.median(last)) / low - 1.0 if low > 0 else 0.0


def _decide(
    steps: Column, validation: Column, training: Column, best: int | None, rise: float, passes: float | None
) -> tuple[str, str]:
    if best is None or len(validation) < 3:
        return TOO_EARLY, f"{state_count(len(validation), 'evaluation')}, and a trend needs three"
    scatter = estimate_scatter(validation) / float(validation[best]) if validation[best] > 0 else 0.0
    fell = np.isfinite(training[best]) and training[-1] < training[best]
    if len(validation) - best > 2 and rise > max(0.02, 3 * scatter) and fell:
        return OVERFITTING, (
            f"the validation loss has risen by {share(rise)} since its best at step {count(steps[best])}, while the "
            f"training loss kept falling"
        )
    half = max(3, len(validation) // 2)
    known = np.isfinite(training)
    growth, trend = (fit_slope(steps[known], one[known], half) for one in (validation - training, validation))
    scale = float(validation[best])
    if growth and trend and growth.low > 0 and growth.value > WIDER * scale and trend.value > -WORTH_LOSS * scale:
        return WIDENING, "the training loss falls, but the validation loss no longer does"
    if passes is not None and passes < 1:
        seen = f"only {share(passes)} of the training set was seen"
        return NOT_OVERFITTING, f"{seen}, so nothing could be memorized"
    return NOT_OVERFITTING, "the validation loss has not started to rise"
