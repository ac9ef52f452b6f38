"""`lockstep data describe`: the contents of a corpus, and what cleaning removed."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

BAR_CELLS, HISTOGRAM_ROWS = 40, 20
FILE_CHARACTERS = 32
EIGHTHS = " ▏▎▍▌▋▊▉█"


def describe(
    paths: Annotated[list[Path], typer.Argument(help="Prepared corpora, folders of images, or run folders.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: a list, if there are several.")] = False,
) -> None:
    """Show what a corpus contains: files, pairs, words, lengths, and what cleaning removed for which reason.

    For images: how many there are of each class. Of several paths, those that are not a corpus are skipped.
    """
    from lockstep.cli.common import print_json
    from lockstep.errors import LockstepError
    from lockstep.notices import warn
    from lockstep.safe_console import SafeConsole

    described: list[dict[str, Any]] = []
    for number, path in enumerate(paths):
        try:
            described.append({"path": str(path)} | read_facts(path))
        except LockstepError as error:
            if len(paths) == 1 or (number == len(paths) - 1 and not described):
                raise
            warn(f"{path} is skipped: {error.message}")
    if as_json:
        print_json(described[0] if len(paths) == 1 else described)
        return
    console = SafeConsole()
    for facts in described:
        _print_corpus(console, Path(facts["path"]), facts)


def _print_corpus(console: "Console", path: Path, facts: dict[str, Any]) -> None:
    from rich.text import Text

    if "classes" in facts:
        _print_images(console, path, facts)
        return
    source, target = facts["languages"]
    megabytes = f"{facts['megabytes']:,.1f} MB of text"
    console.print(Text.assemble((str(path), "bold"), f": {source} to {target}, {megabytes}"))
    console.print(_sets(facts))
    for name, counts in facts["sets"].items():
        if counts["removed"]:
            console.print(_removed(name, counts))
    for line in describe_cleaning(facts):
        console.print(line)
    for side, language in zip(("source", "target"), facts["languages"], strict=True):
        console.print(_lengths(facts["sets"]["train"], side, language))
    if facts["files"]:
        console.print(_files(facts))
    size, kind = facts["vocabulary"]["size"], facts["vocabulary"]["kind"]
    console.print(f"vocabulary: {size:,} pieces ({kind}), digest {facts['vocabulary']['digest'][:16]}")
    console.print(f"corpus digest: {facts['digest']}")


def describe_cleaning(facts: Mapping[str, Any]) -> list[str]:
    """Sentences on what preparation did besides removing pairs. Corpora of version 0.1.0 give none."""
    from lockstep.data.text.languages import is_known

    lines, settings, train = [], facts.get("settings", {}), facts["sets"]["train"]
    if settings.get("cleaning", 1) > 1 and not settings.get("validation") and not settings.get("grammar"):
        sets = "validation text was" if settings.get("test") else "validation and test text were"
        lines.append(f"The {sets} split off the training text (data.split).")
    if changed := train.get("changed"):
        shown = ", ".join(f"{name} in {count:,}" for name, count in changed.items())
        lines.append(f"Normalized training pairs: {shown}.")
    if settings.get("check_languages") and not settings.get("grammar") and not facts.get("languages_checked", True):
        named = " and ".join(facts["languages"])
        lines.append(f"No pair was removed for its language: the text as a whole does not look like {named}.")
    wanted, size = settings.get("vocabulary", {}).get("size"), facts["vocabulary"]["size"]
    if wanted is not None and size < wanted:
        lines.append(f"{size:,} pieces: the text has too few for the {wanted:,} of data.vocabulary.size.")
    if settings.get("check_languages") and (unknown := [code for code in facts["languages"] if not is_known(code)]):
        lines.append(
            f"The language of {' and '.join(unknown)} text was not checked: no such language code is known here."
        )
    return lines


def _print_images(console: "Console", path: Path, facts: dict[str, Any]) -> None:
    from rich.text import Text

    channels, height, width = facts["shape"]
    what = f"{width} x {height} pixels, {channels} channel{'s' * (channels > 1)}, {len(facts['classes'])} classes"
    console.print(Text.assemble((str(path), "bold"), f": images of {what}"))
    sets = facts["sets"]
    table = _table("Images of each class", ["class"], list(sets))
    table.add_column(no_wrap=True)
    for place, name in enumerate(facts["classes"] if "classes" in sets["train"] else ()):  # older runs know totals only
        counts, most = [one["classes"][place] for one in sets.values()], max(sets["train"]["classes"])
        table.add_row(name, *(f"{count:,}" for count in counts), bar(counts[0] / most))
    table.add_row("total", *(f"{one['images']:,}" for one in sets.values()), "")
    console.print(table)
    console.print(f"corpus digest: {facts['digest']}")


def read_facts(path: Path) -> dict[str, Any]:
    """Reads the facts of a corpus folder, or of the corpus on which a run was trained."""
    from lockstep.data.corpus.binary_corpus import INDEX
    from lockstep.data.images.image_set import CLASSES, SOURCE, ImageCorpus
    from lockstep.errors import LockstepError
    from lockstep.files import read_json
    from lockstep.run.directory import RunDirectory

    if not path.exists():
        raise LockstepError(f"{path} does not exist.", "Give a corpus, a folder of images, or a run folder.", code=2)
    if (path / SOURCE).exists() and (path / CLASSES).exists():
        return dict(ImageCorpus.open(path).facts)
    for place in (path / INDEX, RunDirectory(path).data) if path.is_dir() else ():
        if (facts := read_json(place)) is None:
            continue
        if "classes" in facts:
            return facts
        sets = facts.get("sets")
        train = sets.get("train") if isinstance(sets, dict) else None
        if not isinstance(train, dict) or "length_step" not in train:
            raise LockstepError(
                f"{place} was written by another version of Lockstep.",
                "Prepare the corpus again: `lockstep prepare CONFIG --force`.",
            )
        return facts
    raise LockstepError(
        f"{path} is neither a corpus nor a run: it has no {INDEX}, no {CLASSES} and no data.json.",
        "Give the folder that `lockstep prepare` printed, a folder of images, or a run folder.",
        code=2,
    )


def bar(share: float, cells: int = BAR_CELLS) -> str:
    """A bar that fills `share` of `cells` characters, exact to an eighth. A share above zero is always visible."""
    eighths = max(round(share * cells * 8), int(share > 0))
    return EIGHTHS[-1] * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def histogram(counts: list[int], step: int, rows: int = HISTOGRAM_ROWS) -> list[tuple[str, int]]:
    """Joins neighbouring counts until they fit into `rows`; each comes with its range of lengths, such as `1-10`."""
    joined = -(-len(counts) // rows) or 1
    return [
        (f"{start * step + 1}-{(start + joined) * step}", sum(counts[start : start + joined]))
        for start in range(0, len(counts), joined)
    ]


SET_ROWS = {
    "pairs": "lines",
    "source pieces": "source_words",
    "target pieces": "target_words",
    "source words": "source_plain_words",
    "target words": "target_plain_words",
    "longest source": "source_longest",
    "longest target": "target_longest",
}


def _sets(facts: dict[str, Any]) -> "Table":
    table = _table("", [""], list(facts["sets"]))
    for heading, column in SET_ROWS.items():
        table.add_row(heading, *(f"{counts[column]:,}" for counts in facts["sets"].values()))
    table.caption = "pieces with end marks; words are separated by whitespace; longest in pieces"
    return table


def _removed(name: str, counts: dict[str, Any]) -> "Table":
    table = _table(f"Removed from {name}", ["reason"], ["pairs", "share"])
    for reason, count in counts["removed"].items():
        table.add_row(reason, f"{count:,}", f"{count / counts['read']:.2%}")
    removed = sum(counts["removed"].values())
    table.add_row("total", f"{removed:,} of {counts['read']:,}", f"{removed / counts['read']:.2%}")
    return table


def _lengths(counts: dict[str, Any], side: str, language: str) -> "Table":
    table = _table(f"Length of the {side} sentences ({language}), in pieces", [], ["pieces", "pairs"])
    table.add_column(no_wrap=True)
    rows = histogram(counts[f"{side}_lengths"], counts["length_step"])
    most = max((count for _, count in rows), default=1)
    for lengths, count in rows:
        table.add_row(lengths, f"{count:,}", bar(count / most))
    return table


def _files(facts: dict[str, Any]) -> "Table":

    from lockstep.cli.common import fold

    table = _table("Files", ["set", "file"], ["MB", "SHA-256"])
    for file in facts["files"]:
        path = fold(file["path"], FILE_CHARACTERS)
        table.add_row(file["set"], path, f"{file['bytes'] / 1e6:,.1f}", file["sha256"][:16])
    return table


def _table(title: str, left: list[str], right: list[str]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, title=title or None, title_justify="left", caption_justify="left")
    for heading in left:
        table.add_column(heading, overflow="fold", no_wrap=heading == "set")
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
