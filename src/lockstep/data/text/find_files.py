"""Finds the files that a name of parallel text stands for."""

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

from lockstep.data.catalog import entries
from lockstep.data.data_settings import DataSettings, TextName
from lockstep.data.text.compressed import ENDINGS, permission_error, strip_compression
from lockstep.errors import LockstepError

SETS = ("train", "validation", "test")
Format = Literal["lines", "tsv", "csv", "tmx", "po", "mo"]
"""`lines`: a sentence per line; the translations are in another file. The others hold both languages in one file."""
SINGLE_FILES: tuple[Format, ...] = ("tsv", "csv", "tmx", "po", "mo")


class TextFile(TypedDict):
    """A text file of the settings, with size and modification time to detect changes."""

    set: str
    path: str
    bytes: int
    modified_ns: int


class FoundFiles(NamedTuple):
    """The files of a name: a source and a target file with `lines`, or the one file that holds both languages."""

    format: Format
    paths: tuple[Path, ...]


def name_format(name: str) -> Format:
    """Returns the format that the ending of a file name says; `lines` for any other ending."""
    plain = strip_compression(name).lower()
    return next((kind for kind in SINGLE_FILES if plain.endswith(f".{kind}")), "lines")


def find_files(settings: DataSettings, name: TextName) -> FoundFiles:
    """Finds the files of a name, or the two files that are named themselves. `news` is news.en and news.de, else the only
    one of news.tsv, news.csv, ... that exists, else a table called news without ending."""
    if not isinstance(name, str):
        return FoundFiles("lines", tuple(_find_existing((Path(settings.folder) / file).expanduser()) for file in name))
    base = (Path(settings.folder) / name).expanduser()
    kind = name_format(name)
    if kind != "lines":
        return FoundFiles(kind, (_find_existing(base),))
    sides = [Path(f"{base}.{language}") for language in settings.languages]
    if any(_exists(path) for side in sides for path in _add_endings(side)):
        return FoundFiles("lines", tuple(_find_existing(side) for side in sides))
    single = [Path(f"{base}.{kind}") for kind in SINGLE_FILES]
    candidates = [path for one in single for path in _add_endings(one) if path.is_file()]
    if len(candidates) > 1:
        names = ", ".join(path.name for path in candidates)
        raise LockstepError(
            f"{base} could stand for several files: {names}.", "Name the one you mean, with its ending.", code=2
        )
    if candidates:
        return FoundFiles(name_format(candidates[0].name), (candidates[0],))
    unnamed = next((path for path in _add_endings(base) if path.is_file()), None)
    if unnamed is not None:
        return FoundFiles(_find_table_format(unnamed, settings.languages), (unnamed,))
    return FoundFiles("lines", tuple(_find_existing(side) for side in sides))


def list_files(settings: DataSettings, names: Sequence[TextName]) -> list[Path]:
    """Returns all files of these names, in the order in which they are read."""
    return [path for name in names for path in find_files(settings, name).paths]


def describe_files(settings: DataSettings) -> list[TextFile]:
    """Returns all text files of the settings, with size and modification time."""
    if settings.grammar:
        return []
    return [
        {"set": name, "path": str(path.resolve()), "bytes": path.stat().st_size, "modified_ns": path.stat().st_mtime_ns}
        for name in SETS
        for path in list_files(settings, getattr(settings, name))
    ]


def _find_table_format(path: Path, languages: tuple[str, str]) -> Format:
    """Returns the format of a file whose name does not tell it. Raises if it does not hold both languages."""
    from lockstep.data.text.look import look

    kind = look(path).format
    if kind == "lines":
        endings = " and ".join(f"{path.name}.{language}" for language in languages)
        raise LockstepError(
            f"{path} has one sentence per line, not two columns.",
            f"Put the two languages into {endings}, or both into a .tsv or .csv file.",
            code=2,
        )
    return kind


def _add_endings(path: Path) -> Iterator[Path]:
    yield path
    for ending in ENDINGS:
        yield Path(f"{path}{ending}")


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True


def _find_existing(path: Path) -> Path:
    """Returns the file, or its compressed version. It must be a regular file, because it is read more than once."""
    for candidate in _add_endings(path):
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
