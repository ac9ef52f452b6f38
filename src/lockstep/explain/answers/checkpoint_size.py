"""How big a checkpoint is."""

from lockstep.explain.answer import Answer, Chart, Figure, make_figure
from lockstep.explain.answers.checkpoint_contents import COLOURS, NO_CHECKPOINT
from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import count, megabytes, plural, seconds, share
from lockstep.explain.measures.chosen_interval import USUAL_STEPS, SaveInterval, measure_save_interval
from lockstep.explain.pages import charts
from lockstep.explain.reading.journal_file import get_seconds
from lockstep.explain.reading.saved_checkpoints import SavedCheckpoint
from lockstep.run.journal import Line

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
    figures += _list_times(written)
    text = f"{megabytes(last.size)}: {megabytes(state)} for resuming and {megabytes(model)} for inference."
    parameters, optimizer = record.model.get("parameters"), str(record.setting("optimizer.name"))
    if isinstance(parameters, int):
        stores = OPTIMIZER_STATES.get(optimizer, OPTIMIZER_STATES["adamw"])
        text += f" The model has {count(parameters)} parameters of 4 bytes; {stores} for each."
    are = "is" if len(record.checkpoints) == 1 else "are"
    text += f" {number} of {count(len(written))} written {are} kept, {megabytes(total)} in total."
    interval = measure_save_interval(record)
    if interval is not None:
        figures += _list_interval(interval)
        text += f" {_describe_interval(interval)}"
    return Answer(QUESTION, megabytes(last.size), text, "plain", figures, [_draw_sizes(record.checkpoints)])


def _list_times(written: list[Line]) -> list[Figure]:
    """The time to write a checkpoint, and the part of it for which training waited. In runs of earlier versions it waited
    for all of it."""
    timed = [line for line in written if isinstance(line.get("seconds"), int | float)]
    if not timed:
        return []
    waits = [get_seconds(line) for line in timed]
    backgrounds = [get_seconds(line, "background_seconds") for line in timed]
    how = f"mean of {plural(len(timed), 'checkpoint')} in the journal"
    figures = [make_figure("time to write one", (sum(waits) + sum(backgrounds)) / len(timed), seconds, how)]
    if any(backgrounds):
        how = f"{how}; the rest was written while training continued"
        figures.append(make_figure("of it training waited", sum(waits) / len(timed), seconds, how))
    return figures


def _list_interval(interval: SaveInterval) -> list[Figure]:
    how = f"chosen after step {count(interval.step)}, by what saves and a restart had cost until then"
    costs = f"{seconds(interval.save_seconds)} lost to each save, a tenth of its background included"
    loses = f"half an interval and {seconds(interval.restart_seconds)} to start, every {interval.failure_hours:g} hours"
    return [
        make_figure("steps between checkpoints", interval.every, count, how),
        make_figure("saves cost, of the time", interval.save_share, share, costs),
        make_figure("failures cost, of the time", interval.failure_share, share, loses),
    ]


def _describe_interval(interval: SaveInterval) -> str:
    usual = interval.with_steps(USUAL_STEPS)
    total, other = (one.save_share + one.failure_share for one in (interval, usual))
    text = (
        f"train.checkpoint_every=auto saves every {count(interval.every)} steps, about {seconds(interval.seconds)}: "
        f"saves cost {share(interval.save_share)} of the time, and one failure in {interval.failure_hours:g} hours "
        f"{share(interval.failure_share)}."
    )
    if total < other:
        text += f" With {count(USUAL_STEPS)} steps both together would cost {share(other)} instead of {share(total)}."
    return text


def _draw_sizes(checkpoints: list[SavedCheckpoint]) -> Chart:
    parts = {
        folder: ([checkpoint.sum_files(folder) / 1e6 for checkpoint in checkpoints], COLOURS[folder])
        for folder in ("state", "model")
    }
    labels = [f"step {count(checkpoint.step)}" for checkpoint in checkpoints]
    title = "Size of the kept checkpoints"
    description = f"The last of {plural(len(checkpoints), 'checkpoint')} has {megabytes(checkpoints[-1].size)}"
    return charts.draw_stacked_bars("checkpoint-sizes", title, description, labels, parts, "MB")
