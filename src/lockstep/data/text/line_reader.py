"""Reads text files line by line in blocks. A very long line is cut while it is read, so it is never in memory."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lockstep.data.text.encodings import read_text_blocks
from lockstep.errors import LockstepError

BYTES_PER_CHARACTER = 4
TAKE_BYTES = 1 << 26
"""A block of lines ends here, even if it has fewer lines than wanted."""


def count_limit_bytes(characters: int) -> int:
    """Returns a number of bytes to which lines can be cut such that a cut line has more than `characters` characters."""
    return BYTES_PER_CHARACTER * (characters + 2)


def read_line_blocks(path: Path, limit_bytes: int, keep_quotes: bool = False) -> Iterator[bytes]:
    """Yields the content as UTF-8, in blocks that end at the end of a line. Lines are cut to `limit_bytes` bytes. With
    `keep_quotes`, a cut line gets a quotation mark if an odd number of them was cut off, so quoted text ends where it did.
    """
    rest, lost_quotes, skipping = b"", 0, False
    for block in read_text_blocks(path):
        if skipping:
            end = block.find(b"\n")
            lost_quotes += block.count(b'"', 0, end if end >= 0 else len(block))
            if end < 0:
                continue
            rest += b'"' * (keep_quotes and lost_quotes % 2)
            block, skipping = block[end:], False
        data = rest + block
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if len(rest) > limit_bytes:
            lost_quotes = rest.count(b'"')
            rest, skipping = _cut(rest, limit_bytes), True
            lost_quotes -= rest.count(b'"')
        if end:
            yield _cut_lines(data[:end], limit_bytes, keep_quotes)
    if rest:
        yield rest + b'"' * (skipping and keep_quotes and lost_quotes % 2)


def _cut_lines(data: bytes, limit_bytes: int, keep_quotes: bool) -> bytes:
    if len(data) <= limit_bytes:
        return data
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    if np.diff(ends, prepend=-1).max() <= limit_bytes:
        return data
    lines = []
    for line in data.split(b"\n")[:-1]:
        short = _cut(line, limit_bytes)
        lost_quotes = line.count(b'"') - short.count(b'"') if keep_quotes else 0
        lines.append(short + b'"' * (lost_quotes % 2) + b"\n")
    return b"".join(lines)


def _cut(line: bytes, limit_bytes: int) -> bytes:
    """Cuts a line before a character, not within one."""
    if len(line) <= limit_bytes:
        return line
    while limit_bytes and line[limit_bytes] & 0xC0 == 0x80:
        limit_bytes -= 1
    return line[:limit_bytes]


class LineReader:
    """Reads a file a given number of lines at a time."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self._blocks = read_line_blocks(path, limit_bytes)
        self._path = path
        self._rest = b""
        self.count = 0
        """Lines taken so far."""

    def take(self, lines: int, most_bytes: int | None = None) -> bytes:
        """Returns the next lines: fewer after `most_bytes` bytes and at the end of the file, none after it."""
        taken, missing, size = [], lines, 0
        while missing and (data := self._rest or next(self._blocks, b"")):
            self._rest = b""
            if (present := _count_lines(data)) > missing:
                cut = int(np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))[missing - 1]) + 1
                data, self._rest, present = data[:cut], data[cut:], missing
            taken.append(data)
            missing -= present
            size += len(data)
            if most_bytes is not None and size >= most_bytes:
                break
        self.count += lines - missing
        if self.count == 0:
            remedy = "Fill it, or remove its name from the data settings."
            raise LockstepError(f"The text file {self._path} is empty.", remedy)
        return b"".join(taken)

    def count_all(self) -> int:
        """Counts the lines of the file by reading to its end. Call it last."""
        return self.count + _count_lines(self._rest) + sum(map(_count_lines, self._blocks))


def _count_lines(data: bytes) -> int:
    return data.count(b"\n") + bool(data and not data.endswith(b"\n"))
