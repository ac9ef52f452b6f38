"""`lockstep data describe`: what is in a corpus, and what was left out of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

BAR_CELLS, HISTOGRAM_ROWS = 40, 20
EIGHTHS = " ▏▎▍▌▋▊▉█"


def describe(
    path: Annotated[Path, typer.Argument(help="A corpus folder, or a run folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
) -> None:
    """Show what a corpus holds: files, pairs, words, lengths, and what cleaning removed for which reason; of images, how
    many there are of each class."""
    from rich.console import Console
    from rich.markup import escape

    from lockstep.cli.common import print_json

    facts = read_facts(path)
    if as_json:
        print_json({"path": str(path)} | facts)
        return
    console = Console()
    if "classes" in facts:
        _print_images(console, path, facts)
        return
    source, target = facts["languages"]
    console.print(f"[bold]{escape(str(path))}[/]: {source} to {target}, {facts['megabytes']:,.1f} MB of text")
    console.print(_sets(facts))
    for name, found in facts["sets"].items():
        if found["removed"]:
            console.print(_removed(name, found))
    for side, language in zip(("source", "target"), facts["languages"], strict=True):
        console.print(_lengths(facts["sets"]["train"], side, language))
    if facts["files"]:
        console.print(_files(facts))
    size, kind = facts["vocabulary"]["size"], facts["vocabulary"]["kind"]
    console.print(f"vocabulary: {size:,} pieces ({kind}), digest {facts['vocabulary']['digest'][:16]}")
    console.print(f"corpus digest: {facts['digest']}")


def _print_images(console: "Console", path: Path, facts: dict[str, Any]) -> None:
    from rich.markup import escape

    channels, height, width = facts["shape"]
    what = f"{width} x {height} pixels, {channels} channel{'s' * (channels > 1)}, {len(facts['classes'])} classes"
    console.print(f"[bold]{escape(str(path))}[/]: images of {what}")
    sets = facts["sets"]
    table = _table("Images of each class", ["class"], list(sets))
    table.add_column(no_wrap=True)
    for place, name in enumerate(facts["classes"] if "classes" in sets["train"] else ()):  # older runs know totals only
        counts, most = [one["classes"][place] for one in sets.values()], max(sets["train"]["classes"])
        table.add_row(escape(name), *(f"{count:,}" for count in counts), bar(counts[0] / most))
    table.add_row("together", *(f"{one['images']:,}" for one in sets.values()), "")
    console.print(table)
    console.print(f"corpus digest: {facts['digest']}")


def read_facts(path: Path) -> dict[str, Any]:
    """The facts of a corpus folder, or of the corpus that a run was trained on."""
    from lockstep.data.corpus.binary_corpus import INDEX
    from lockstep.data.images.image_set import CLASSES, SOURCE, ImageCorpus
    from lockstep.errors import LockstepError
    from lockstep.files import read_json
    from lockstep.run.directory import RunDirectory

    if (path / SOURCE).exists() and (path / CLASSES).exists():
        return dict(ImageCorpus.open(path).facts)
    for place in (path / INDEX, RunDirectory(path).data):
        if (facts := read_json(place)) is None:
            continue
        if isinstance(facts, dict) and "classes" in facts:
            return facts
        if not isinstance(facts, dict) or "length_step" not in facts.get("sets", {}).get("train", {}):
            raise LockstepError(
                f"{place} was written by another version of Lockstep.", "Prepare it again: `lockstep prepare --force`."
            )
        return facts
    raise LockstepError(
        f"{path} is neither a corpus nor a run: it has no {INDEX}, no {CLASSES} and no data.json.",
        "Name the folder that `lockstep prepare` printed, a folder of images, or a run folder.",
        code=2,
    )


def bar(share: float, cells: int = BAR_CELLS) -> str:
    """A bar of `share` times `cells` character cells, exact to an eighth; something is never drawn as nothing."""
    eighths = max(round(share * cells * 8), int(share > 0))
    return EIGHTHS[-1] * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def histogram(counts: list[int], step: int, rows: int = HISTOGRAM_ROWS) -> list[tuple[str, int]]:
    """Neighbouring counts joined until they fit into `rows`, each with the lengths it stands for."""
    joined = -(-len(counts) // rows) or 1
    return [
        (f"{start * step + 1}-{(start + joined) * step}", sum(counts[start : start + joined]))
        for start in range(0, len(counts), joined)
    ]


def _sets(facts: dict[str, Any]) -> "Table":
    table = _table("", ["set"], ["pairs", "source pieces", "target pieces", "source words", "target words", "longest"])
    for name, found in facts["sets"].items():
        longest = f"{found['source_longest']:,} / {found['target_longest']:,}"
        counts = ("lines", "source_words", "target_words", "source_plain_words", "target_plain_words")
        table.add_row(name, *(f"{found[count]:,}" for count in counts), longest)
    table.caption = "pieces with end marks; words are separated by blanks; longest in pieces, source / target"
    return table


def _removed(name: str, found: dict[str, Any]) -> "Table":
    table = _table(f"Left out of {name}", ["reason"], ["pairs", "share"])
    for reason, count in found["removed"].items():
        table.add_row(reason, f"{count:,}", f"{count / found['read']:.2%}")
    gone = sum(found["removed"].values())
    table.add_row("together", f"{gone:,} of {found['read']:,}", f"{gone / found['read']:.2%}")
    return table


def _lengths(found: dict[str, Any], side: str, language: str) -> "Table":
    table = _table(f"Length of the {side} sentences ({language}), in pieces", [], ["pieces", "pairs"])
    table.add_column(no_wrap=True)
    rows = histogram(found[f"{side}_lengths"], found["length_step"])
    most = max((count for _, count in rows), default=1)
    for lengths, count in rows:
        table.add_row(lengths, f"{count:,}", bar(count / most))
    return table


def _files(facts: dict[str, Any]) -> "Table":
    from rich.markup import escape

    table = _table("Files", ["set", "file"], ["MB", "SHA-256"])
    for file in facts["files"]:
        table.add_row(file["set"], escape(file["path"]), f"{file['bytes'] / 1e6:,.1f}", file["sha256"][:16])
    return table


def _table(title: str, left: list[str], right: list[str]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, title=title or None, title_justify="left", caption_justify="left")
    for heading in left:
        table.add_column(heading, overflow="fold")
    for heading in right:
        table.add_column(heading, justify="right")
    return table
