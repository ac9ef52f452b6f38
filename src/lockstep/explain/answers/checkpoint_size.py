"""How big a checkpoint is."""

from lockstep.explain.answer import Answer, Chart, make_figure
from lockstep.explain.answers.checkpoint_contents import COLOURS, NO_CHECKPOINT
from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import count, megabytes, plural, seconds
from lockstep.explain.pages import charts
from lockstep.explain.reading.saved_checkpoints import SavedCheckpoint

QUESTION = "How big is a checkpoint?"
OPTIMIZER_STATES = {"adamw": "Adam stores two more values", "sgd": "momentum stores one more value"}


def answer(evidence: Evidence) -> Answer:
    record = evidence.record
    if not record.checkpoints:
        return Answer(QUESTION, "no checkpoint", NO_CHECKPOINT, "unknown")
    last, written = record.checkpoints[-1], record.primary.select_events("checkpoint")
    state, model = last.sum_files("state"), last.sum_files("model")
    total = sum(checkpoint.size for checkpoint in record.checkpoints)
    number = plural(len(record.checkpoints), "checkpoint")
    figures = [
        make_figure("a checkpoint", last.size, megabytes, f"{last.name}: sizes in its manifest, and the manifest"),
        make_figure("of it state/", state, megabytes, "for resuming"),
        make_figure("of it model/", model, megabytes, "for inference"),
        make_figure("all that are kept", total, megabytes, f"manifests of {number}"),
    ]
    timed = [float(line["seconds"]) for line in written if isinstance(line.get("seconds"), int | float)]
    if timed:
        how = f"mean of {plural(len(timed), 'checkpoint')} in the journal"
        figures.append(make_figure("time to write one", sum(timed) / len(timed), seconds, how))
    text = f"{megabytes(last.size)}: {megabytes(state)} for resuming and {megabytes(model)} for inference."
    parameters, optimizer = record.model.get("parameters"), str(record.setting("optimizer.name"))
    if isinstance(parameters, int):
        stores = OPTIMIZER_STATES.get(optimizer, OPTIMIZER_STATES["adamw"])
        text += f" The model has {count(parameters)} parameters of 4 bytes; {stores} for each."
    are = "is" if len(record.checkpoints) == 1 else "are"
    text += f" {number} of {count(len(written))} written {are} kept, {megabytes(total)} in total."
    return Answer(QUESTION, megabytes(last.size), text, "plain", figures, [_draw_sizes(record.checkpoints)])


def _draw_sizes(checkpoints: list[SavedCheckpoint]) -> Chart:
    parts = {
        folder: ([checkpoint.sum_files(folder) / 1e6 for checkpoint in checkpoints], COLOURS[folder])
        for folder in ("state", "model")
    }
    labels = [f"step {count(checkpoint.step)}" for checkpoint in checkpoints]
    title = "Size of the kept checkpoints"
    description = f"The last of {plural(len(checkpoints), 'checkpoint')} has {megabytes(checkpoints[-1].size)}"
    return charts.draw_stacked_bars("checkpoint-sizes", title, description, labels, parts, "MB")
