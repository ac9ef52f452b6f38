"""Makes text corpora from line-aligned files: in archives, as single (compressed) files, or as SGML test sets."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO

from lockstep.data.catalog.entries import CatalogEntry, CatalogPart
from lockstep.data.catalog.recipes.archive import Content, decompress, read_archive
from lockstep.errors import LockstepError

SEGMENT = re.compile(r"<seg[^>]*>(.*)</seg>")
BLOCK_BYTES = 1 << 20


def make_pairs(entry: CatalogEntry, pieces: Mapping[str, Path], folder: Path) -> dict[str, int]:
    """Writes SET.LANGUAGE for each set and returns the number of pairs in each."""
    assert entry.languages is not None
    counts: dict[str, int] = {}
    for name, parts in entry.sets.items():
        with ExitStack() as stack:
            outputs = [stack.enter_context((folder / f"{name}.{language}").open("wb")) for language in entry.languages]
            counts[name] = sum(_append(part, pieces, outputs) for part in parts)
    return counts


def write_pairs(folder: Path, name: str, languages: Iterable[str], pairs: list[tuple[str, str]]) -> None:
    """Writes pairs to two files, one sentence per line."""
    for side, language in enumerate(languages):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


def _append(part: CatalogPart, pieces: Mapping[str, Path], outputs: Sequence[IO[bytes]]) -> int:
    """Appends a part to both files and returns its number of pairs. Both sides must have the same number of lines."""
    lines: dict[str, int] = {}
    names = part.names()
    for name, content in _read_inputs(part, pieces):
        if name in names and name not in lines:
            lines[name] = _copy(name, content, outputs[names.index(name)])
        if len(lines) == len(names):
            break
    for name in names:
        if name not in lines:
            raise LockstepError(f"{pieces[part.needs()[0]]} holds no file {name}.", "It is not the expected archive.")
    source, target = (lines[name] for name in names)
    if source != target:
        raise LockstepError(
            f"{names[0]} has {source:,} lines but {names[1]} has {target:,}.",
            "Line n of one must be the translation of line n of the other: get the files again.",
        )
    return source


def _read_inputs(part: CatalogPart, pieces: Mapping[str, Path]) -> Iterator[tuple[str, Content]]:
    if part.piece:
        for path, content in read_archive(pieces[part.piece]):
            yield PurePosixPath(path).name, content
        return
    for name in part.pieces or ():
        with pieces[name].open("rb") as file, decompress(file) as text:
            yield name, Content(text, pieces[name])


def _copy(name: str, content: Content, output: IO[bytes]) -> int:
    """Copies text unchanged and returns its number of lines. A missing line feed at the end is added."""
    count, last = 0, b"\n"
    for block in (
        _read_segments(name, content) if name.endswith(".sgm") else iter(lambda: content.read(BLOCK_BYTES), b"")
    ):
        count += block.count(b"\n")
        last = block[-1:]
        output.write(block)
    if last != b"\n":
        output.write(b"\n")
        count += 1
    return count


def _read_segments(name: str, content: Content) -> Iterator[bytes]:
    """Yields the sentences of a WMT test set exactly as sacreBLEU reads them: entities are not decoded."""
    try:
        for line in content.read().decode().split("\n"):
            if line.startswith("<seg ") and (segment := SEGMENT.search(line)):
                yield " ".join(segment[1].split()).encode() + b"\n"
    except UnicodeDecodeError:
        raise LockstepError(f"{name} is not valid UTF-8.", "Get it again.") from None
