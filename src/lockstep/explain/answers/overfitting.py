"""Whether the model memorizes its training set instead of learning the task."""

import numpy as np

from lockstep.explain.answer import Answer, Chart, Figure, Tone, make_figure, make_missing_figure
from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import count, number, plural, precise, share
from lockstep.explain.measures.loss_gap import (
    NOT_OVERFITTING,
    OVERFITTING,
    WIDENING,
    LossGap,
    measure_training_loss,
)
from lockstep.explain.pages import charts
from lockstep.explain.reading.record import Record

QUESTION = "Was it overfitting?"


def answer(evidence: Evidence) -> Answer:
    record, gap = evidence.record, evidence.loss_gap
    tones: dict[str, Tone] = {OVERFITTING: "mind", WIDENING: "mind", NOT_OVERFITTING: "good"}
    text = f"{gap.verdict.capitalize()}: {gap.reason}."
    causes = _list_regularizers(record)
    if causes:
        text += (
            f" The training loss is measured with {' and '.join(causes)}, the validation loss without: how the gap changes "
            f"matters, not its size."
        )
    tone, convergence = tones.get(gap.verdict, "unknown"), evidence.convergence
    if convergence.has_few_examples and convergence.examples:
        examples = plural(convergence.examples, convergence.noun)
        tone, text = "plain", f"{text} The validation loss is that of only {examples}: the verdict is not sure."
    return Answer(QUESTION, gap.verdict, text, tone, _list_figures(gap), _draw_losses(record, gap))


def _list_regularizers(record: Record) -> list[str]:
    """Returns what raises the training loss but not the validation loss. A custom task may ignore these settings."""
    if ":" in str(record.setting("task")):
        return []
    augmented = any(record.setting(f"data.augment.{how}") for how in ("pad", "flip", "cutout"))
    regularizers = {
        "label smoothing": record.setting("train.label_smoothing"),
        "dropout": record.setting("model.dropout"),
        "augmented images": augmented and record.setting("data.images"),
    }
    return [name for name, value in regularizers.items() if value]


def _list_figures(gap: LossGap) -> list[Figure]:
    figures: list[Figure] = []
    known = np.flatnonzero(np.isfinite(gap.training))
    if len(known):
        (first, begin), (last, end) = ((int(place), count(gap.steps[place])) for place in (known[0], known[-1]))
        how = "median of the last validation losses, up to three, against the lowest"
        figures = [
            make_figure("training loss", float(gap.training[last]), precise, f"mean of the steps before step {end}"),
            make_figure("validation loss", float(gap.validation[last]), precise, f"evaluation at step {end}"),
            make_figure("gap", float(gap.gap[last]), number, f"validation minus training loss, step {end}"),
            make_figure("gap at the first evaluation", float(gap.gap[first]), number, f"step {begin}"),
            make_figure("rise since the best", gap.rise, share, how),
        ]
    else:
        figures.append(make_missing_figure("gap", "no evaluation in the journal has a loss"))
    if gap.passes is not None:
        how = f"{gap.unit} of all steps, divided by those of the training set"
        data = "text" if gap.unit == "target words" else gap.unit
        figures.append(make_figure(f"passes through the {data}", gap.passes, number, how))
    return figures


def _draw_losses(record: Record, gap: LossGap) -> list[Chart]:
    steps, losses = measure_training_loss(record)
    if not len(steps) or not np.isfinite(losses).any():
        return []
    x, y = charts.thin(steps, losses, 150)
    lines = [charts.Line("training", x, y, "--orange")]
    description = f"The training loss fell from {number(float(y[0]))} to {number(float(y[-1]))}."
    if len(gap.steps):
        lines.append(charts.Line("validation", gap.steps, gap.validation, "--blue", markers=True))
        description += f" The validation loss was {number(float(gap.validation[-1]))} at the end."
    title, scale = "Training and validation loss", f"loss, nats per {gap.unit[:-1]}"
    return [charts.draw_lines("loss-gap", title, description, lines, "step", scale)]
