"""Which files a checkpoint consists of, and what each is for."""

from lockstep.explain.answer import Answer, Chart, make_figure
from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import megabytes, plural
from lockstep.explain.pages import charts
from lockstep.explain.reading.saved_checkpoints import SavedCheckpoint

QUESTION = "Which files does a checkpoint consist of, and what is each for?"
NO_CHECKPOINT = "No checkpoint with a readable manifest is in the run directory."
STATE = "weights and optimizer state for resuming; any number of workers can read it"
PURPOSES = {
    "manifest.json": "step, position in the data, scores, settings; size and SHA-256 of every other file. Written last",
    "model/model.safetensors": "the weights alone, for inference or export",
    "model/config.json": "how to build the model, and the settings for inference",
    "model/vocabulary.model": "the SentencePiece vocabulary, from text to pieces and back",
}
COLOURS = {"state": "--blue", "model": "--green"}


def answer(evidence: Evidence) -> Answer:
    checkpoints = evidence.record.checkpoints
    if not checkpoints:
        return Answer(QUESTION, "no checkpoint", NO_CHECKPOINT, "unknown")
    files = checkpoints[-1].files
    figures = [make_figure(name, size, megabytes, get_purpose(name)) for name, size in files.items()]
    short = plural(len(files), "file")
    text = (
        f"{short}: `state/` has everything that training needs to resume exactly where it stopped, "
        f"`model/` everything that inference needs, and `manifest.json` the digests that verify all files."
    )
    return Answer(QUESTION, short, text, "plain", figures, [_draw_files(checkpoints[-1])])


def get_purpose(name: str) -> str:
    return STATE if name.startswith("state/") else PURPOSES.get(name, "not known to this version")


def _draw_files(checkpoint: SavedCheckpoint) -> Chart:
    """Draws the sizes of all files. The files of `state/` are one bar: there may be one for every worker."""
    state = [size for name, size in checkpoint.files.items() if name.startswith("state/")]
    sizes = {f"state/ ({plural(len(state), 'part')})": sum(state)} if state else {}
    sizes |= {name: size for name, size in checkpoint.files.items() if not name.startswith("state/")}
    sizes = dict(sorted(sizes.items(), key=lambda item: -item[1]))
    texts = [megabytes(size) for size in sizes.values()]
    description = ", ".join(f"{name} {size}" for name, size in zip(sizes, texts, strict=True))
    colours = [COLOURS.get(name.partition("/")[0], "--grey") for name in sizes]
    numbers, title = [size / 1e6 for size in sizes.values()], f"Files of {checkpoint.name}"
    return charts.draw_bars("checkpoint-files", title, description, list(sizes), numbers, texts, "MB", colours)
