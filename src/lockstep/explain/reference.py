"""The run beside a known training of the same recipe: Transformer-base on WMT16 English-German, field report 3."""

from dataclasses import dataclass

import numpy as np

from lockstep.explain.answer import Chart, Figure, Tone, missing, told
from lockstep.explain.answers.overfitting import training_loss
from lockstep.explain.answers.rate import ROUNDING, Schedule
from lockstep.explain.formatting import count, fine, number, plain, plural, share
from lockstep.explain.pages import charts
from lockstep.explain.reading.record import Record

SCORE = "Eval_BLEU_Score"
STEPS = np.array([15_000.0, 50_000.0, 100_000.0, 200_000.0, 300_000.0])
SCORES = np.array([0.30, 0.353, 0.367, 0.375, 0.380])
LOSS_STEP, LOSS = 50_000.0, 1.5905
"""Validation loss of the same recipe after 50,000 steps, field report 1."""
SENTENCES = 512
"""Pairs in a step of the reference: 4 GPUs with 128 each."""
NEAR = 0.005
"""Closer than this to the reference is on track."""
RECIPE = {
    "model.encoder_layers": 6,
    "model.decoder_layers": 6,
    "model.width": 512,
    "model.feed_forward": 2048,
    "schedule.name": "noam",
    "schedule.factor": 2.0,
    "schedule.warmup": 8000,
    "data.languages": ["en", "de"],
    "data.vocabulary.size": 32768,
}
AHEAD, ON_TRACK, BEHIND, TOO_EARLY = "ahead", "on track", "behind", "too early to compare"
FORMULA = Schedule("noam", peak=1.0, factor=2.0, warmup=8000, floor=0.0, steps=300_000, width=512)
CAUTION = (
    "Eval_BLEU_Score is computed with teacher forcing: the model predicts each piece from the correct previous ones. It is "
    "not BLEU and can only be compared with curves of this recipe. An untrained model with tied embeddings scores about "
    "0.9, because it repeats its input; the score then falls towards 0 in the first steps and rises from there."
)


@dataclass(frozen=True)
class ReferenceComparison:
    verdict: str
    text: str
    tone: Tone
    figures: list[Figure]
    charts: list[Chart]


def applies(record: Record) -> bool:
    return all(record.setting(key) == value for key, value in RECIPE.items())


def score_at(step: float) -> float:
    """The reference between its points, straight over the logarithm of the step."""
    return float(np.interp(np.log(step), np.log(STEPS), SCORES))


def compare(record: Record) -> ReferenceComparison | None:
    """None when the run follows another recipe."""
    if not applies(record):
        return None
    steps, scores = record.scores(SCORE)
    tones: dict[str, Tone] = {AHEAD: "good", ON_TRACK: "good", BEHIND: "mind"}
    figures = list[Figure]()
    if len(steps) and steps[-1] >= STEPS[0]:
        score, wanted, at = float(scores[-1]), score_at(float(steps[-1])), f"step {count(steps[-1])}"
        away = score - wanted
        verdict = AHEAD if away > NEAR else BEHIND if away < -NEAR else ON_TRACK
        figures = [
            told(SCORE, score, number, f"last evaluation, {at}"),
            told(
                "reference there", wanted, number, f"field report 3, straight between its points over log(step), {at}"
            ),
            told("difference", away, lambda value: f"{value:+.3f}", f"within {NEAR} is on track"),
        ]
        text = f"{SCORE} is {number(score)} at {at}, where the reference had {number(wanted)}."
    else:
        verdict, last = TOO_EARLY, count(steps[-1] if len(steps) else 0)
        text = f"The reference curve begins at step {count(STEPS[0])}, and the last evaluation was at step {last}."
    losses_at, losses = record.scores("loss")
    if len(losses_at) and losses_at[-1] >= LOSS_STEP:
        there = float(np.interp(LOSS_STEP, losses_at, losses))
        how = f"between the nearest evaluations; the reference had {LOSS}, field report 1"
        figures.append(told("validation loss at 50,000 steps", there, fine, how))
    batch = (record.choices.get("batch") or {}).get("sentences")
    if isinstance(batch, int) and batch != SENTENCES:
        text += (
            f" A step has {plural(batch, 'pair')} here and {SENTENCES} in the reference: equal steps are unequal work."
        )
    figures += _rate(record)
    text = f"{verdict.capitalize()}: {text} {CAUTION}"
    return ReferenceComparison(verdict, text, tones.get(verdict, "unknown"), figures, _charts(record))


def _rate(record: Record) -> list[Figure]:
    steps = record.primary.steps
    if not len(steps):
        return [missing("learning rate", "no step in the journal")]
    away = float(np.nanmax(np.abs(steps.rate / FORMULA.at(steps.step) - 1.0)))
    how = f"largest of {count(len(steps))} steps against {FORMULA.formula}"
    return [told("learning rate, away from the reference", away if away > ROUNDING else 0.0, share, how)]


def _charts(record: Record) -> list[Chart]:
    steps, scores = record.scores(SCORE)
    grid = np.geomspace(STEPS[0], STEPS[-1], 60)
    reference = charts.Line("reference", grid, np.array([score_at(step) for step in grid]), "--orange", "dash")
    lines = [charts.Line("this run", steps, scores, "--blue", markers=True)] if len(steps) else []
    says = f"The reference rises from {SCORES[0]} at 15,000 steps to {SCORES[-1]} at 300,000."
    title = f"{SCORE} over the reference"
    drawn = [charts.lines("reference-score", title, says, [*lines, reference], "step", SCORE, zero=True)]
    losses_at, losses = record.scores("loss")
    numbers, training = training_loss(record)
    lines = [charts.Line("training", *charts.thin(numbers, training, 150), "--orange")] if len(numbers) else []
    if len(losses_at):
        lines.append(charts.Line("validation", losses_at, losses, "--blue", markers=True))
    if lines:
        lines.append(charts.Line("report 1", np.array([LOSS_STEP]), np.array([LOSS]), "--vermilion", markers=True))
        says = f"The reference is one point: {LOSS} at {count(LOSS_STEP)} steps, of field report 1."
        title = "Loss, and the reference's after 50,000 steps"
        drawn.append(charts.lines("reference-loss", title, says, lines, "step", "loss, nats per target word"))
    own = record.primary.steps
    whole = np.linspace(1.0, max(STEPS[-1], float(record.reached)), 300)
    lines = [charts.Line("reference", whole, FORMULA.at(whole), "--orange", "dash")]
    if len(own):
        lines.append(charts.Line("this run", *charts.thin(own.step, own.rate), "--blue", width=4))
    says = f"The reference rises to {plain(FORMULA.highest)} at step 8,000 and falls with the square root of the step."
    title = "Learning rate over the reference"
    return [*drawn, charts.lines("reference-rate", title, says, lines, "step", "learning rate", zero=True)]
