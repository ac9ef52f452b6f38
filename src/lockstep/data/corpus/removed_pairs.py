"""The file of removed pairs in a corpus folder: tab-separated columns reason, file, line, source, target; compressed.

Long texts are shortened. Backslashes, tabs and line breaks in a text are escaped as `\\\\`, `\\t`, `\\n` and `\\r`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from lockstep.data.text.clean import RemovedPair
from lockstep.data.text.compressed import read_blocks
from lockstep.errors import LockstepError

REMOVED = "removed.tsv.zst"
SHOWN_CHARACTERS = 200
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class RemovedRow(NamedTuple):
    """One row of the file."""

    reason: str
    file: str
    line: int
    """Counted from 1; in a file that does not consist of lines, the number of the pair."""
    source: str
    target: str


def format_rows(file: str, first: int, pairs: Iterable[RemovedPair]) -> bytes:
    """Returns the rows of pairs of one block, whose first line has the number `first`, in the order of the text."""
    rows = []
    for pair in sorted(pairs):
        cells = pair.reason, file, str(first + pair.line), shorten(pair.source), shorten(pair.target)
        rows.append("\t".join(cell.translate(_ESCAPES) for cell in cells) + "\n")
    return "".join(rows).encode(errors="replace")


def shorten(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


class RemovedWriter:
    """Writes the file as a stream. Use it in a `with` statement."""

    def __init__(self, folder: Path) -> None:
        import zstandard

        self._file = (folder / REMOVED).open("wb")
        self._compressor = zstandard.ZstdCompressor().compressobj()

    def append(self, rows: bytes) -> None:
        self._file.write(self._compressor.compress(rows))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.write(self._compressor.flush())
        self._file.close()


def read_rows(folder: Path) -> Iterator[RemovedRow]:
    """Yields the removed pairs of a corpus, as escaped texts."""
    path = folder / REMOVED
    if not path.exists():
        raise LockstepError(
            f"The corpus in {folder} has no list of removed pairs.",
            "Corpora of Lockstep 0.1.0 have none: prepare it again with `lockstep prepare CONFIG --force`.",
        )
    rest = b""
    for block in read_blocks(path):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            reason, file, number, source, target = line.decode().split("\t")
            yield RemovedRow(reason, file, int(number), source, target)
