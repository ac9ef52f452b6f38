"""Finds the files that a name of parallel text stands for, and reads their sentence pairs as a stream.

| name | what is read |
|---|---|
| `news` | two files, `news.en` and `news.de`; line n of one is the translation of line n of the other |
| `pairs.tsv` | one file, two columns separated by a tab |
| `memory.tmx` | a translation memory (see `tmx.py`) |
| `app.po`, `app.mo` | a gettext catalogue (see `gettext.py`) |

Each file may be compressed. Only a line feed ends a line, so U+2028 and other separators inside a sentence never shift
one side against the other. At most one block of a file is in memory.
"""

import codecs
import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypedDict, cast

import numpy as np

from lockstep.data.catalog import entries
from lockstep.data.data_settings import DataSettings
from lockstep.data.text import gettext, tmx
from lockstep.data.text.compressed import ENDINGS, permission_error, read_line_blocks, strip_compression
from lockstep.errors import LockstepError

SETS = ("train", "validation", "test")
SINGLE_FILES = (".tsv", ".tmx", ".po", ".mo")
READ_LINES = 4096


class TextFile(TypedDict):
    """A text file of the settings, with size and modification time to detect changes."""

    set: str
    path: str
    bytes: int
    modified_ns: int


@dataclass(frozen=True)
class TextBlock:
    """Consecutive lines as bytes. One process cuts the blocks; the worker processes decode them."""

    paths: tuple[Path, ...]
    first: int
    """The number of the first line, counted from 1."""
    parts: tuple[bytes, ...]
    """Source lines and target lines, or one part with both as columns."""

    def decode(self) -> tuple[str, str]:
        """Returns the text of both sides, unchanged, with a line feed after every sentence."""
        decoded = [self._decode_part(part, path) for part, path in zip(self.parts, self.paths, strict=True)]
        if len(decoded) == 2:
            return decoded[0], decoded[1]
        rows = [line.split("\t") for line in decoded[0].split("\n")[:-1]]
        for number, row in enumerate(rows, start=self.first):
            if len(row) != 2:
                raise LockstepError(
                    f"Line {number} of {self.paths[0]} has {len(row)} column{'s' * (len(row) != 1)} instead of two.",
                    "Each line must hold a source sentence, one tab, and its translation.",
                )
        return "".join(f"{row[0]}\n" for row in rows), "".join(f"{row[1]}\n" for row in rows)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Returns the sentence pairs, without whitespace around the sentences."""
        source, target = (text.split("\n")[:-1] for text in self.decode())
        return zip(map(str.strip, source), map(str.strip, target), strict=True)

    def _decode_part(self, part: bytes, path: Path) -> str:
        data = part.removeprefix(codecs.BOM_UTF8) if self.first == 1 else part
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            number = self.first + data.count(b"\n", 0, error.start)
            raise LockstepError(
                f"Line {number} of {path} is not valid UTF-8.",
                "Convert the file, for example: iconv -f WINDOWS-1252 -t UTF-8.",
            ) from None
        return text if text.endswith("\n") else f"{text}\n"


def find_files(settings: DataSettings, name: str) -> tuple[Path, ...]:
    """Returns the source and the target file of a name, or the one file that holds both languages."""
    base = (Path(settings.folder) / name).expanduser()
    if strip_compression(name).endswith(SINGLE_FILES):
        return (_find_existing(base),)
    return tuple(_find_existing(Path(f"{base}.{language}")) for language in settings.languages)


def list_files(settings: DataSettings, names: Sequence[str]) -> list[Path]:
    """Returns all files of these names, in the order in which they are read."""
    return [path for name in names for path in find_files(settings, name)]


def describe_files(settings: DataSettings) -> list[TextFile]:
    """Returns all text files of the settings, with size and modification time."""
    if settings.grammar:
        return []
    return [
        {"set": name, "path": str(path.resolve()), "bytes": path.stat().st_size, "modified_ns": path.stat().st_mtime_ns}
        for name in SETS
        for path in list_files(settings, getattr(settings, name))
    ]


def read_blocks(settings: DataSettings, name: str, lines: int) -> Iterator[TextBlock]:
    """Yields a set (train, validation or test) in blocks of `lines` lines. The last block of a file may be shorter."""
    if settings.grammar is not None:
        from lockstep import demo_corpus

        every_pair = demo_corpus.generate_pairs(settings.grammar.seed, cast(demo_corpus.Split, name))
        pairs = islice(every_pair, getattr(settings.grammar, name))
        in_order = pairs if settings.languages == ("en", "de") else ((german, english) for english, german in pairs)
        yield from _pack_pairs(Path("grammar"), in_order, lines)
        return
    for base in getattr(settings, name):
        yield from read_file_blocks(settings, base, lines)


def read_file_blocks(settings: DataSettings, name: str, lines: int = READ_LINES) -> Iterator[TextBlock]:
    """Yields the blocks of the files that one name stands for."""
    paths = find_files(settings, name)
    if len(paths) == 2:
        yield from _read_two_files(*paths, lines)
        return
    [path] = paths
    kind = Path(strip_compression(path.name)).suffix
    if kind == ".tsv":
        yield from _read_table(path, lines)
    elif kind == ".tmx":
        yield from _pack_pairs(path, tmx.read(path, settings.languages), lines)
    else:
        yield from _pack_pairs(path, gettext.read(path, settings.languages, compiled=kind == ".mo"), lines)


def read_set(settings: DataSettings, name: str) -> Iterator[tuple[str, str]]:
    """Yields the sentence pairs of validation or test, without whitespace around them. An empty sentence is an error."""
    for block in read_blocks(settings, name, READ_LINES):
        for number, pair in enumerate(block.pairs(), start=block.first):
            if not all(pair):
                raise LockstepError(
                    f"Line {number} of {block.paths[0] if not pair[0] else block.paths[-1]} is empty.",
                    "Every line of validation and test text is scored: fill it in, or remove it on both sides.",
                )
            yield pair


def _read_two_files(source_path: Path, target_path: Path, lines: int) -> Iterator[TextBlock]:
    source, target = _LineReader(source_path), _LineReader(target_path)
    while True:
        first = source.count + 1
        parts = source.take(lines), target.take(lines)
        if source.count != target.count:
            raise LockstepError(
                f"{source_path} has {source.count_all()} lines but {target_path} has {target.count_all()}.",
                "Line n of one file must be the translation of line n of the other: align them first.",
            )
        if not parts[0]:
            return
        yield TextBlock((source_path, target_path), first, parts)


def _read_table(path: Path, lines: int) -> Iterator[TextBlock]:
    table = _LineReader(path)
    while True:
        first = table.count + 1
        if not (part := table.take(lines)):
            return
        yield TextBlock((path,), first, (part,))


def _pack_pairs(path: Path, pairs: Iterable[tuple[str, str]], lines: int) -> Iterator[TextBlock]:
    """Yields blocks of pairs from a source that does not consist of lines."""
    pairs, first = iter(pairs), 1
    while chunk := list(islice(pairs, lines)):
        source, target = ("".join(f"{pair[side]}\n" for pair in chunk).encode() for side in (0, 1))
        yield TextBlock((path, path), first, (source, target))
        first += len(chunk)


class _LineReader:
    """Reads a file a given number of lines at a time."""

    def __init__(self, path: Path) -> None:
        self._blocks = read_line_blocks(path)
        self._path = path
        self._rest = b""
        self.count = 0
        """Lines taken so far."""

    def take(self, lines: int) -> bytes:
        """Returns the next lines: fewer at the end of the file, none after it."""
        taken, missing = [], lines
        while missing and (data := self._rest or next(self._blocks, b"")):
            self._rest = b""
            if (present := _count_lines(data)) > missing:
                cut = int(np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))[missing - 1]) + 1
                data, self._rest, present = data[:cut], data[cut:], missing
            taken.append(data)
            missing -= present
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


def _find_existing(path: Path) -> Path:
    """Returns the file, or its compressed version. It must be a regular file, because it is read more than once."""
    for candidate in (path, *(Path(f"{path}{ending}") for ending in ENDINGS)):
        try:
            candidate.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            raise permission_error(candidate) from None
        except OSError as error:
            raise LockstepError(f"{candidate} cannot be read: {error.strerror}.", "Check the name.") from None
        if candidate.is_file():
            return candidate
        kind = "a folder" if candidate.is_dir() else "not a regular file"
        raise LockstepError(f"{candidate} is {kind}, but a text file is expected there.", "Name a file.", code=2)
    raise _missing_error(path)


def _missing_error(path: Path) -> LockstepError:
    message = f"The text file {path} does not exist, nor with {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}."
    remedy = "Check data.folder and the names in data.train, data.validation and data.test (without language suffix)."
    try:
        near = difflib.get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=5, cutoff=0.5)
    except OSError:
        folder = path.parent
        if folder.name in entries.load():
            remedy = f"`lockstep data get {folder.name} --to {folder}` downloads it, or set data.folder."
        return LockstepError(message, f"There is no folder {folder}. {remedy}", code=2)
    return LockstepError(message, f"Similar names there: {', '.join(near)}. {remedy}" if near else remedy, code=2)
