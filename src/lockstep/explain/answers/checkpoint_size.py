"""Questions 8 and 9: which files a checkpoint has, what each is for, and how big it is."""

from lockstep.explain.answer import Answer, told
from lockstep.explain.formatting import count, megabytes, plural, seconds
from lockstep.explain.pages import charts
from lockstep.explain.reading.record import Record
from lockstep.run.checkpoint import Checkpoint

QUESTION_FILES = "Which files does a checkpoint consist of, and what is each for?"
QUESTION_SIZE = "How big is a checkpoint?"
PURPOSES = {
    "manifest.json": "step, position in the data, scores, settings; size and SHA-256 of every other file. Written last",
    "model/model.safetensors": "the weights alone, for inference or export",
    "model/config.json": "how to build the model, and the settings for inference",
    "model/vocabulary.model": "the SentencePiece vocabulary, from text to pieces and back",
}
COLOURS = {"state": "--blue", "model": "--green"}
KEEPS = {"adamw": "Adam stores two more values", "sgd": "momentum stores one more value"}
NONE = "No checkpoint with a readable manifest is in the run directory."


def purpose(name: str) -> str:
    if name.startswith("state/"):
        return "weights and optimizer state for resuming; any number of workers can read it"
    return PURPOSES.get(name, "not known to this version")


def files_of(saved: Checkpoint) -> dict[str, int]:
    """Bytes of every file, the manifest itself included."""
    manifest = saved.path / "manifest.json"
    own = {"manifest.json": manifest.stat().st_size} if manifest.exists() else {}
    return own | {name: int(facts["bytes"]) for name, facts in saved.manifest["files"].items()}


def answer_files(record: Record) -> Answer:
    if not record.saved:
        return Answer(8, QUESTION_FILES, "no checkpoint", NONE, "unknown")
    saved = record.saved[-1]
    files = files_of(saved)
    figures = [told(name, size, megabytes, purpose(name)) for name, size in files.items()]
    text = (
        f"{plural(len(files), 'file')}: `state/` has everything that training needs to resume exactly where it stopped, "
        f"`model/` everything that inference needs, and `manifest.json` the digests that verify all files."
    )
    sizes = dict(sorted(_drawn(files).items(), key=lambda item: -item[1]))
    texts = [megabytes(size) for size in sizes.values()]
    says = ", ".join(f"{name} {size}" for name, size in zip(sizes, texts, strict=True))
    colours = [COLOURS.get(name.partition("/")[0], "--grey") for name in sizes]
    numbers, title = [size / 1e6 for size in sizes.values()], f"Files of {saved.path.name}"
    chart = charts.bars("checkpoint-files", title, says, list(sizes), numbers, texts, "MB", colours)
    return Answer(8, QUESTION_FILES, plural(len(files), "file"), text, "plain", figures, [chart])


def _drawn(files: dict[str, int]) -> dict[str, int]:
    """The parts of the state count together: there may be one for every worker."""
    state = [size for name, size in files.items() if name.startswith("state/")]
    shown = {f"state/ ({plural(len(state), 'part')})": sum(state)} if state else {}
    return shown | {name: size for name, size in files.items() if not name.startswith("state/")}


def answer_size(record: Record) -> Answer:
    if not record.saved:
        return Answer(9, QUESTION_SIZE, "no checkpoint", NONE, "unknown")
    saved, written = record.saved[-1], record.primary.of("checkpoint")
    total = sum(files_of(saved).values())
    state, model = _part(saved, "state"), _part(saved, "model")
    kept = sum(sum(files_of(one).values()) for one in record.saved)
    figures = [
        told("a checkpoint", total, megabytes, f"{saved.path.name}: sizes in its manifest, and the manifest"),
        told("of it state/", state, megabytes, "for resuming"),
        told("of it model/", model, megabytes, "for inference"),
        told("all that are kept", kept, megabytes, f"manifests of {plural(len(record.saved), 'checkpoint')}"),
    ]
    timed = [float(line["seconds"]) for line in written if isinstance(line.get("seconds"), int | float)]
    if timed:
        how = f"mean of {plural(len(timed), 'checkpoint')} in the journal"
        figures.append(told("time to write one", sum(timed) / len(timed), seconds, how))
    text = f"{megabytes(total)}: {megabytes(state)} for resuming and {megabytes(model)} for inference."
    parameters, rule = record.model.get("parameters"), str(record.setting("optimizer.name"))
    if isinstance(parameters, int):
        text += f" The model has {count(parameters)} parameters of 4 bytes; {KEEPS.get(rule, KEEPS['adamw'])} for each."
    many = plural(len(record.saved), "checkpoint")
    are = "is" if len(record.saved) == 1 else "are"
    text += f" {many} of {count(len(written))} written {are} kept, {megabytes(kept)} in total."
    parts = {part: ([_part(one, part) / 1e6 for one in record.saved], COLOURS[part]) for part in ("state", "model")}
    labels = [f"step {count(one.step)}" for one in record.saved]
    says = f"The last of {many} has {megabytes(total)}"
    chart = charts.stacked("checkpoint-sizes", "Size of the kept checkpoints", says, labels, parts, "MB")
    return Answer(9, QUESTION_SIZE, megabytes(total), text, "plain", figures, [chart])


def _part(saved: Checkpoint, part: str) -> int:
    return sum(size for name, size in files_of(saved).items() if name.startswith(f"{part}/"))
