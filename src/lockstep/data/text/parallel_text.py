"""Parallel text: which files a name stands for, and their sentence pairs as a stream.

| name | what is read |
|---|---|
| `news` | two files, `news.en` and `news.de`; line n of one is the translation of line n of the other |
| `pairs.tsv` | one file, two columns separated by a tab |
| `memory.tmx` | a translation memory (see `tmx.py`) |
| `app.po`, `app.mo` | a gettext catalogue (see `gettext.py`) |

Each may be compressed. Lines end at a line feed and nowhere else, so that U+2028 and its kin inside a sentence never
shift one side against the other. Nothing here holds more than a block of a file.
"""

import codecs
import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from lockstep.data.catalog import entries
from lockstep.data.data_settings import DataSettings
from lockstep.data.text import gettext, tmx
from lockstep.data.text.compressed import ENDINGS, no_permission, plain_name, whole_lines
from lockstep.errors import LockstepError

SETS = ("train", "validation", "test")
SINGLE_FILES = (".tsv", ".tmx", ".po", ".mo")
READ_LINES = 4096


@dataclass(frozen=True)
class TextBlock:
    """Neighbouring lines as bytes: quick to cut and to hand over, while decoding them is work that others can share."""

    paths: tuple[Path, ...]
    first: int
    """The number of the first line, counted from 1."""
    parts: tuple[bytes, ...]
    """Source lines and target lines, or one part that holds both in columns."""

    def texts(self) -> tuple[str, str]:
        """Both sides as they stand, a line feed after every sentence."""
        decoded = [self._decoded(part, path) for part, path in zip(self.parts, self.paths, strict=True)]
        if len(decoded) == 2:
            return decoded[0], decoded[1]
        rows = [line.split("\t") for line in decoded[0].split("\n")[:-1]]
        for number, row in enumerate(rows, start=self.first):
            if len(row) != 2:
                raise LockstepError(
                    f"Line {number} of {self.paths[0]} has {len(row)} column{'s' * (len(row) != 1)} instead of two.",
                    "Each line holds a source sentence, one tab, and its translation.",
                )
        return "".join(f"{row[0]}\n" for row in rows), "".join(f"{row[1]}\n" for row in rows)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """The sentence pairs without outer blanks."""
        source, target = (text.split("\n")[:-1] for text in self.texts())
        return zip(map(str.strip, source), map(str.strip, target), strict=True)

    def _decoded(self, part: bytes, path: Path) -> str:
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


def find(settings: DataSettings, name: str) -> tuple[Path, ...]:
    """The source and the target file of a name, or the one file that holds both."""
    base = (Path(settings.folder) / name).expanduser()
    if plain_name(name).endswith(SINGLE_FILES):
        return (_existing(base),)
    return tuple(_existing(Path(f"{base}.{language}")) for language in settings.languages)


def files(settings: DataSettings, names: Sequence[str]) -> list[Path]:
    """Every file that reading these names uses, in the order of reading."""
    return [path for name in names for path in find(settings, name)]


def sources(settings: DataSettings) -> list[dict[str, Any]]:
    """Every text file of the settings, with what tells at a glance whether it is still the same."""
    if settings.grammar:
        return []
    return [
        {"set": name, "path": str(path.resolve()), "bytes": path.stat().st_size, "modified_ns": path.stat().st_mtime_ns}
        for name in SETS
        for path in files(settings, getattr(settings, name))
    ]


def blocks(settings: DataSettings, name: str, lines: int) -> Iterator[TextBlock]:
    """Train, validation or test in blocks of `lines` lines, the last of each file shorter. Every call gives the same."""
    if settings.grammar is not None:
        from lockstep import demo_corpus

        every_pair = demo_corpus.pairs(settings.grammar.seed, cast(demo_corpus.Split, name))
        pairs = islice(every_pair, getattr(settings.grammar, name))
        in_order = pairs if settings.languages == ("en", "de") else ((german, english) for english, german in pairs)
        yield from _packed(Path("grammar"), in_order, lines)
        return
    for base in getattr(settings, name):
        yield from file_blocks(settings, base, lines)


def file_blocks(settings: DataSettings, name: str, lines: int = READ_LINES) -> Iterator[TextBlock]:
    """The blocks of the files that one name stands for."""
    paths = find(settings, name)
    if len(paths) == 2:
        yield from _two_files(*paths, lines)
        return
    [path] = paths
    kind = Path(plain_name(path.name)).suffix
    if kind == ".tsv":
        yield from _table(path, lines)
    elif kind == ".tmx":
        yield from _packed(path, tmx.read(path, settings.languages), lines)
    else:
        yield from _packed(path, gettext.read(path, settings.languages, compiled=kind == ".mo"), lines)


def read_set(settings: DataSettings, name: str) -> Iterator[tuple[str, str]]:
    """The sentence pairs of validation or test, without outer blanks; an empty sentence is an error."""
    for block in blocks(settings, name, READ_LINES):
        for number, pair in enumerate(block.pairs(), start=block.first):
            if not all(pair):
                raise LockstepError(
                    f"Line {number} of {block.paths[0] if not pair[0] else block.paths[-1]} is empty.",
                    "Every line of validation and test text is scored: fill it in, or remove it on both sides.",
                )
            yield pair


def _two_files(source_path: Path, target_path: Path, lines: int) -> Iterator[TextBlock]:
    source, target = _Lines(source_path), _Lines(target_path)
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


def _table(path: Path, lines: int) -> Iterator[TextBlock]:
    table = _Lines(path)
    while True:
        first = table.count + 1
        if not (part := table.take(lines)):
            return
        yield TextBlock((path,), first, (part,))


def _packed(path: Path, pairs: Iterable[tuple[str, str]], lines: int) -> Iterator[TextBlock]:
    """Pairs that were found in something else than lines."""
    pairs, first = iter(pairs), 1
    while chunk := list(islice(pairs, lines)):
        source, target = ("".join(f"{pair[side]}\n" for pair in chunk).encode() for side in (0, 1))
        yield TextBlock((path, path), first, (source, target))
        first += len(chunk)


class _Lines:
    """The lines of a file, taken so and so many at a time."""

    def __init__(self, path: Path) -> None:
        self._pieces = whole_lines(path)
        self._path = path
        self._rest = b""
        self.count = 0
        """Lines taken so far."""

    def take(self, lines: int) -> bytes:
        """The next lines; fewer at the end, none behind it."""
        taken, missing = [], lines
        while missing and (data := self._rest or next(self._pieces, b"")):
            self._rest = b""
            if (present := _count(data)) > missing:
                cut = int(np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))[missing - 1]) + 1
                data, self._rest, present = data[:cut], data[cut:], missing
            taken.append(data)
            missing -= present
        self.count += lines - missing
        if self.count == 0:
            remedy = "Fill it, or take its name out of the data settings."
            raise LockstepError(f"The text file {self._path} is empty.", remedy)
        return b"".join(taken)

    def count_all(self) -> int:
        """Lines of the whole file; nothing can be taken afterwards."""
        return self.count + _count(self._rest) + sum(map(_count, self._pieces))


def _count(data: bytes) -> int:
    return data.count(b"\n") + bool(data and not data.endswith(b"\n"))


def _existing(path: Path) -> Path:
    """The file itself or a compressed one beside it; only regular files, because they are read several times."""
    for candidate in (path, *(Path(f"{path}{ending}") for ending in ENDINGS)):
        try:
            candidate.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            raise no_permission(candidate) from None
        except OSError as error:
            raise LockstepError(f"{candidate} cannot be read: {error.strerror}.", "Check the name.") from None
        if candidate.is_file():
            return candidate
        kind = "a folder" if candidate.is_dir() else "not a regular file"
        raise LockstepError(f"{candidate} is {kind}, but a text file is expected there.", "Name a file.", code=2)
    raise _missing(path)


def _missing(path: Path) -> LockstepError:
    message = f"The text file {path} does not exist, nor with {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}."
    remedy = "Check data.folder and the names in data.train, data.validation and data.test (without language ending)."
    try:
        near = difflib.get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=5, cutoff=0.5)
    except OSError:
        folder = path.parent
        if folder.name in entries.load():
            remedy = f"`lockstep data get {folder.name} --to {folder}` makes it, or set data.folder."
        return LockstepError(message, f"There is no folder {folder}. {remedy}", code=2)
    return LockstepError(message, f"Similar names there: {', '.join(near)}. {remedy}" if near else remedy, code=2)
