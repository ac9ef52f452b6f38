"""Compares a run with a published training of the same recipe: Transformer-base on WMT16 English-German, field report 3."""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from lockstep.explain.answer import Chart, Figure, Tone, make_figure, make_missing_figure
from lockstep.explain.formatting import compact, count, number, plural, precise, share
from lockstep.explain.measures.loss_gap import measure_training_loss
from lockstep.explain.measures.schedule_formula import ROUNDING, ScheduleFormula
from lockstep.explain.pages import charts
from lockstep.explain.reading.json_access import get_dict
from lockstep.explain.reading.record import Record

SCORE = "Eval_BLEU_Score"
STEPS = np.array([15_000.0, 50_000.0, 100_000.0, 200_000.0, 300_000.0])
SCORES = np.array([0.30, 0.353, 0.367, 0.375, 0.380])
LOSS_STEP, LOSS = 50_000.0, 1.5905
"""Validation loss of the same recipe after 50,000 steps, field report 1."""
SENTENCES = 512
"""Pairs in a step of the reference: 4 GPUs with 128 each."""
NEAR = 0.005
"""A score within this distance of the reference is on track."""
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
FORMULA = ScheduleFormula("noam", peak=1.0, factor=2.0, warmup=8000, floor=0.0, steps=300_000, width=512)
CAUTION = (
    "Eval_BLEU_Score is computed with teacher forcing: the model predicts each piece from the correct previous ones. It is "
    "not BLEU and can only be compared with curves of this recipe. An untrained model with tied embeddings scores about "
    "0.9, because it repeats its input; the score then falls towards 0 in the first steps and rises from there."
)


class ReferenceFacts(TypedDict):
    """The comparison in the JSON of a report."""

    verdict: str
    text: str


@dataclass(frozen=True)
class ReferenceComparison:
    verdict: str
    text: str
    tone: Tone
    figures: list[Figure]
    charts: list[Chart]

    def facts(self) -> ReferenceFacts:
        return {"verdict": self.verdict, "text": self.text}


def follows_recipe(record: Record) -> bool:
    return all(record.setting(key) == value for key, value in RECIPE.items())


def interpolate_score(step: float) -> float:
    """Returns the score of the reference, interpolated over the logarithm of the step."""
    return float(np.interp(np.log(step), np.log(STEPS), SCORES))


def compare(record: Record) -> ReferenceComparison | None:
    """Returns None when the run follows another recipe."""
    if not follows_recipe(record):
        return None
    verdict, text, figures = _compare_score(record)
    steps, losses = record.scores("loss")
    if len(steps) and steps[-1] >= LOSS_STEP:
        loss = float(np.interp(LOSS_STEP, steps, losses))
        how = f"between the nearest evaluations; the reference had {LOSS}, field report 1"
        figures.append(make_figure("validation loss at 50,000 steps", loss, precise, how))
    batch = get_dict(record.choices.get("batch")).get("sentences")
    if isinstance(batch, int) and batch != SENTENCES:
        text += (
            f" A step has {plural(batch, 'pair')} here and {SENTENCES} in the reference: equal steps are unequal work."
        )
    figures.append(_compare_rate(record))
    tones: dict[str, Tone] = {AHEAD: "good", ON_TRACK: "good", BEHIND: "mind"}
    drawn = [_draw_score(record), *_draw_losses(record), _draw_rate(record)]
    text = f"{verdict.capitalize()}: {text} {CAUTION}"
    return ReferenceComparison(verdict, text, tones.get(verdict, "unknown"), figures, drawn)


def _compare_score(record: Record) -> tuple[str, str, list[Figure]]:
    """Returns the verdict, a sentence and the figures of the last evaluation."""
    steps, scores = record.scores(SCORE)
    if not len(steps) or steps[-1] < STEPS[0]:
        last = count(steps[-1] if len(steps) else 0)
        text = f"The reference curve begins at step {count(STEPS[0])}, and the last evaluation was at step {last}."
        return TOO_EARLY, text, []
    score, expected, at = float(scores[-1]), interpolate_score(float(steps[-1])), f"step {count(steps[-1])}"
    difference = score - expected
    verdict = AHEAD if difference > NEAR else BEHIND if difference < -NEAR else ON_TRACK
    how = f"field report 3, straight between its points over log(step), {at}"
    figures = [
        make_figure(SCORE, score, number, f"last evaluation, {at}"),
        make_figure("reference there", expected, number, how),
        make_figure("difference", difference, lambda value: f"{value:+.3f}", f"within {NEAR} is on track"),
    ]
    return verdict, f"{SCORE} is {number(score)} at {at}, where the reference had {number(expected)}.", figures


def _compare_rate(record: Record) -> Figure:
    steps = record.primary.steps
    if not len(steps):
        return make_missing_figure("learning rate", "no step in the journal")
    away = float(np.nanmax(np.abs(steps.rate / FORMULA.at(steps.step) - 1.0)))
    how = f"largest of {count(len(steps))} steps against {FORMULA.formula}"
    return make_figure("learning rate, away from the reference", away if away > ROUNDING else 0.0, share, how)


def _draw_score(record: Record) -> Chart:
    steps, scores = record.scores(SCORE)
    grid = np.geomspace(STEPS[0], STEPS[-1], 60)
    reference = np.array([interpolate_score(step) for step in grid])
    lines = [charts.Line("this run", steps, scores, "--blue", markers=True)] if len(steps) else []
    lines.append(charts.Line("reference", grid, reference, "--orange", "dash"))
    description = f"The reference rises from {SCORES[0]} at 15,000 steps to {SCORES[-1]} at 300,000."
    title = f"{SCORE} over the reference"
    return charts.draw_lines("reference-score", title, description, lines, "step", SCORE, zero=True)


def _draw_losses(record: Record) -> list[Chart]:
    steps, losses = record.scores("loss")
    training_steps, training = measure_training_loss(record)
    lines = []
    if len(training_steps):
        lines.append(charts.Line("training", *charts.thin(training_steps, training, 150), "--orange"))
    if len(steps):
        lines.append(charts.Line("validation", steps, losses, "--blue", markers=True))
    if not lines:
        return []
    lines.append(charts.Line("report 1", np.array([LOSS_STEP]), np.array([LOSS]), "--vermilion", markers=True))
    description = f"The reference is one point: {LOSS} at {count(LOSS_STEP)} steps, of field report 1."
    title, scale = "Loss, and the reference's after 50,000 steps", "loss, nats per target word"
    return [charts.draw_lines("reference-loss", title, description, lines, "step", scale)]


def _draw_rate(record: Record) -> Chart:
    steps = record.primary.steps
    grid = np.linspace(1.0, max(STEPS[-1], float(record.last_step)), 300)
    lines = [charts.Line("reference", grid, FORMULA.at(grid), "--orange", "dash")]
    if len(steps):
        lines.append(charts.Line("this run", *charts.thin(steps.step, steps.rate), "--blue", width=4))
    peak = compact(FORMULA.highest)
    description = f"The reference rises to {peak} at step 8,000 and falls with the square root of the step."
    title = "Learning rate over the reference"
    return charts.draw_lines("reference-rate", title, description, lines, "step", "learning rate", zero=True)
