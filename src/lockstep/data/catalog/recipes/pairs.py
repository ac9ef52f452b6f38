"""Text corpora that come as line-aligned files: in archives, compressed one by one, or as SGML test sets."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO

from lockstep.data.catalog.entries import CatalogEntry, CatalogPart
from lockstep.data.catalog.recipes.archive import Content, contents, plain
from lockstep.errors import LockstepError

SEGMENT = re.compile(r"<seg[^>]*>(.*)</seg>")
BLOCK_BYTES = 1 << 20


def build(entry: CatalogEntry, pieces: Mapping[str, Path], folder: Path) -> dict[str, int]:
    """Writes SET.LANGUAGE for each set and returns its number of pairs."""
    assert entry.languages is not None
    counts: dict[str, int] = {}
    for name, parts in entry.sets.items():
        with ExitStack() as stack:
            outputs = [stack.enter_context((folder / f"{name}.{language}").open("wb")) for language in entry.languages]
            counts[name] = sum(_append(part, pieces, outputs) for part in parts)
    return counts


def write(folder: Path, name: str, languages: Iterable[str], pairs: list[tuple[str, str]]) -> None:
    """Writes pairs as two files, one sentence a line."""
    for side, language in enumerate(languages):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


def _append(part: CatalogPart, pieces: Mapping[str, Path], outputs: Sequence[IO[bytes]]) -> int:
    """Adds a part to both files and returns its pairs, the same number on both sides."""
    lines: dict[str, int] = {}
    names = part.names()
    for name, content in _inputs(part, pieces):
        if name in names and name not in lines:
            lines[name] = _copy(name, content, outputs[names.index(name)])
        if len(lines) == len(names):
            break
    for name in names:
        if name not in lines:
            raise LockstepError(f"{pieces[part.needs()[0]]} holds no file {name}.", "It is not the archive expected.")
    source, target = (lines[name] for name in names)
    if source != target:
        raise LockstepError(
            f"{names[0]} has {source:,} lines but {names[1]} has {target:,}.",
            "Line n of one must be the translation of line n of the other: get the files again.",
        )
    return source


def _inputs(part: CatalogPart, pieces: Mapping[str, Path]) -> Iterator[tuple[str, Content]]:
    if part.piece:
        for path, content in contents(pieces[part.piece]):
            yield PurePosixPath(path).name, content
        return
    for name in part.pieces or ():
        with pieces[name].open("rb") as file, plain(file) as text:
            yield name, Content(text, pieces[name])


def _copy(name: str, content: Content, output: IO[bytes]) -> int:
    """Copies text as it is and returns its number of lines; every one ends in a line feed afterwards."""
    count, last = 0, b"\n"
    for block in _segments(name, content) if name.endswith(".sgm") else iter(lambda: content.read(BLOCK_BYTES), b""):
        count += block.count(b"\n")
        last = block[-1:]
        output.write(block)
    if last != b"\n":
        output.write(b"\n")
        count += 1
    return count


def _segments(name: str, content: Content) -> Iterator[bytes]:
    """The sentences of a WMT test set, exactly as sacreBLEU reads them: entities stay as they are written."""
    try:
        for line in content.read().decode().split("\n"):
            if line.startswith("<seg ") and (found := SEGMENT.search(line)):
                yield " ".join(found[1].split()).encode() + b"\n"
    except UnicodeDecodeError:
        raise LockstepError(f"{name} is not valid UTF-8.", "Get it again.") from None
