"""Consecutive lines of parallel text. One process cuts the blocks; the worker processes decode them."""

import codecs
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from lockstep.data.text.encodings import advise_conversion
from lockstep.errors import LockstepError

BadReason = Literal["undecodable", "columns", "characters"]
SKIP = "Or set data.bad_lines=skip to leave such lines out."
_ADVICE_BYTES = 4096


class BadRow(NamedTuple):
    """A row that is not a pair, with what can be shown of it, without line breaks."""

    reason: BadReason
    source: str
    target: str = ""


class DecodedBlock(NamedTuple):
    """The text of both sides, unchanged, with a line feed after every sentence."""

    source: str
    target: str
    bad: dict[int, BadReason]
    """What is wrong with lines that are not pairs or too long, by their number in the block, counted from 0."""


@dataclass(frozen=True)
class TextBlock:
    """Consecutive lines as bytes."""

    paths: tuple[Path, ...]
    first: int
    """The number of the first line, counted from 1. In a file that does not consist of lines: of the first pair."""
    parts: tuple[bytes, ...]
    """Source lines and target lines, or one part with both as columns."""
    bad: dict[int, BadReason] = field(default_factory=dict)
    """Lines that are known not to be pairs, by their number in the block, counted from 0."""

    def decode(self, limit: int = sys.maxsize, skip_bad: bool = False) -> DecodedBlock:
        """Returns the text of both sides. Lines of more than `limit` characters on a side are reported and emptied. A line
        that cannot be decoded or has a wrong number of columns is an error, or reported with `skip_bad`."""
        bad = dict(self.bad)
        texts = [self._decode_part(side, skip_bad, bad) for side in range(len(self.parts))]
        if len(texts) == 1:
            texts = self._split_columns(texts[0], limit, skip_bad, bad)
        for side, text in enumerate(texts):
            if len(text) > limit:
                texts[side] = _drop_long(text, limit, bad)
        return DecodedBlock(texts[0], texts[1], bad)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Returns the sentence pairs, without whitespace around the sentences."""
        source, target, _ = self.decode()
        sides = (map(str.strip, text.split("\n")[:-1]) for text in (source, target))
        return zip(*sides, strict=True)

    def _decode_part(self, side: int, skip_bad: bool, bad: dict[int, BadReason]) -> str:
        part = self.parts[side]
        data = part.removeprefix(codecs.BOM_UTF8) if self.first == 1 else part
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            if not skip_bad:
                start = data.rfind(b"\n", 0, error.start) + 1
                line = self.first + data.count(b"\n", 0, error.start)
                raise LockstepError(
                    f"Line {line} of {self.paths[side]} is not valid UTF-8.",
                    f"{advise_conversion(data[start : start + _ADVICE_BYTES])} {SKIP}",
                ) from None
            text = _decode_good_lines(data, bad)
        return text if text.endswith("\n") else f"{text}\n"

    def _split_columns(self, text: str, limit: int, skip_bad: bool, bad: dict[int, BadReason]) -> list[str]:
        rows = [line.split("\t") for line in text.split("\n")[:-1]]
        for number, row in enumerate(rows):
            if len(row) == 2:
                continue
            if number not in bad and len(row[0]) <= limit:  # else the end of the line, with the tab, was cut off
                if not skip_bad:
                    raise columns_error(self.first + number, self.paths[0], len(row), "one tab")
                bad[number] = "columns"
            rows[number] = [" ".join(row), ""]
        return ["".join(f"{row[0]}\n" for row in rows), "".join(f"{row[1]}\n" for row in rows)]


def columns_error(line: int, path: Path, columns: int, separator: str) -> LockstepError:
    return LockstepError(
        f"Line {line} of {path} has {columns} column{'s' * (columns != 1)} instead of two.",
        f"Each line must hold a source sentence, {separator}, and its translation. {SKIP}",
    )


def pack_pairs(
    path: Path, pairs: Iterable[tuple[str, str] | BadRow], lines: int, most_bytes: int
) -> Iterator[TextBlock]:
    """Yields blocks of pairs from a source that does not consist of lines."""
    first, count, size = 1, 0, 0
    sides: tuple[list[str], list[str]] = ([], [])
    bad: dict[int, BadReason] = {}
    for pair in pairs:
        if isinstance(pair, BadRow):
            bad[count] = pair.reason
            pair = pair.source, pair.target
        for side, text in zip(sides, pair, strict=True):
            side.append(text)
            size += len(text)
        count += 1
        if count == lines or size >= most_bytes:
            yield _pack(path, first, sides, bad)
            first, count, size, sides, bad = first + count, 0, 0, ([], []), {}
    if count:
        yield _pack(path, first, sides, bad)


def _pack(path: Path, first: int, sides: tuple[list[str], list[str]], bad: dict[int, BadReason]) -> TextBlock:
    source, target = ("".join(f"{text}\n" for text in side).encode() for side in sides)
    return TextBlock((path, path), first, (source, target), bad)


def _decode_good_lines(data: bytes, bad: dict[int, BadReason]) -> str:
    """Decodes line by line. Adds the lines that cannot be decoded to `bad`."""
    lines = data.removesuffix(b"\n").split(b"\n")
    texts = []
    for number, line in enumerate(lines):
        try:
            texts.append(line.decode())
        except UnicodeDecodeError:
            texts.append(line.decode(errors="replace"))
            bad[number] = "undecodable"
    return "".join(f"{text}\n" for text in texts)


def _drop_long(text: str, limit: int, bad: dict[int, BadReason]) -> str:
    """Shortens lines of more than `limit` characters and adds them to `bad`. The rest of them is not needed."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if len(line) > limit:
            lines[number] = line[:limit]
            bad.setdefault(number, "characters")
    return "\n".join(lines)
