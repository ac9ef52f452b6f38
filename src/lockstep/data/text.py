"""Parallel text: which files a name stands for, and their sentence pairs as a stream.

Lines end at a line feed and nowhere else, so that U+2028 and its kin inside a sentence never shift one side against the
other. Nothing here holds more than a block of a file.
"""

import codecs
import difflib
import gzip
import lzma
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, cast

from lockstep.data.settings import DataSettings
from lockstep.errors import LockstepError

SETS = ("train", "validation", "test")
COMPRESSED = (".gz", ".xz", ".zst")
BLOCK_BYTES = 1 << 20


def find(settings: DataSettings, name: str) -> tuple[Path, ...]:
    """The source and the target file of a name, or the one file of a table (.tsv)."""
    base = (Path(settings.folder) / name).expanduser()
    if name.removesuffix(base.suffix if base.suffix in COMPRESSED else "").endswith(".tsv"):
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


def read_set(settings: DataSettings, name: str) -> Iterator[tuple[str, str]]:
    """The sentence pairs of train, validation or test; every call gives the same ones."""
    if settings.grammar is None:
        return read_pairs(settings, getattr(settings, name), blank=name == "train")
    from lockstep.data import grammar

    pairs = islice(grammar.pairs(settings.grammar.seed, cast(grammar.Split, name)), getattr(settings.grammar, name))
    return pairs if settings.languages == ("en", "de") else ((german, english) for english, german in pairs)


def read_pairs(settings: DataSettings, names: Sequence[str], *, blank: bool = True) -> Iterator[tuple[str, str]]:
    """The sentence pairs of all names, without outer blanks; with `blank=False` an empty sentence is an error."""
    for name in names:
        paths = find(settings, name)
        pairs = _table(*paths) if len(paths) == 1 else _two_files(*paths)
        for number, (source, target) in enumerate(pairs, start=1):
            if not blank and not (source and target):
                raise LockstepError(
                    f"Line {number} of {paths[0] if not source else paths[-1]} is empty.",
                    "Every line of validation and test text is scored: fill it in, or remove it on both sides.",
                )
            yield source, target


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file as they stand, without the line feed and the byte order mark."""
    count = 0
    for data in _whole_lines(path):
        if count == 0:
            data = data.removeprefix(codecs.BOM_UTF8)
        try:
            lines = data.decode().split("\n")
        except UnicodeDecodeError as error:
            number = count + data.count(b"\n", 0, error.start) + 1
            raise LockstepError(
                f"Line {number} of {path} is not valid UTF-8.",
                "Convert the file, for example: iconv -f WINDOWS-1252 -t UTF-8.",
            ) from None
        if not lines[-1]:
            lines.pop()
        count += len(lines)
        yield from lines
    if count == 0:
        raise LockstepError(f"The text file {path} is empty.", "Fill it, or take its name out of the data settings.")


def _two_files(source_path: Path, target_path: Path) -> Iterator[tuple[str, str]]:
    sources, targets = read_lines(source_path), read_lines(target_path)
    for number, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            longer = number + 1 + sum(1 for _ in (targets if source is None else sources))
            source_count, target_count = (number, longer) if source is None else (longer, number)
            raise LockstepError(
                f"{source_path} has {source_count} lines but {target_path} has {target_count}.",
                "Line n of one file must be the translation of line n of the other: align them first.",
            )
        yield source.strip(), target.strip()


def _table(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise LockstepError(
                f"Line {number} of {path} has {len(columns)} column{'s' * (len(columns) != 1)} instead of two.",
                "Each line holds a source sentence, one tab, and its translation.",
            )
        yield columns[0].strip(), columns[1].strip()


def _whole_lines(path: Path) -> Iterator[bytes]:
    """The uncompressed content in large pieces that end where a line ends."""
    try:
        rest = b""
        for block in _blocks(path):
            data = rest + block
            end = data.rfind(b"\n") + 1
            rest = data[end:]
            if end:
                yield data[:end]
        if rest:
            yield rest
    except PermissionError:
        raise _no_permission(path) from None
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise _damaged(path, error) from None
    except OSError as error:
        raise LockstepError(f"{path} cannot be read: {error.strerror}.", "Check the disk, or copy it anew.") from None


def _blocks(path: Path) -> Iterator[bytes]:
    if path.suffix == ".zst":
        yield from _zstandard_blocks(path)
    elif path.suffix == ".gz":
        with gzip.open(path) as unzipped:
            while block := unzipped.read(BLOCK_BYTES):
                yield block
    else:
        with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block


def _zstandard_blocks(path: Path) -> Iterator[bytes]:
    """All frames of a file; unlike the library's own stream reader, it notices when the last one is cut off."""
    import zstandard

    frame = None
    with path.open("rb") as file:
        while data := file.read(BLOCK_BYTES):
            while data:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                try:
                    yield frame.decompress(data)
                except zstandard.ZstdError as error:
                    raise _damaged(path, error) from None
                data = frame.unused_data
                if frame.eof:
                    frame = None
    if frame:
        raise EOFError("the last frame is cut off")


def _existing(path: Path) -> Path:
    """The file itself or a compressed one beside it; only regular files, because they are read several times."""
    for candidate in (path, *(Path(f"{path}{ending}") for ending in COMPRESSED)):
        try:
            candidate.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            raise _no_permission(candidate) from None
        except OSError as error:
            raise LockstepError(f"{candidate} cannot be read: {error.strerror}.", "Check the name.") from None
        if candidate.is_file():
            return candidate
        kind = "a folder" if candidate.is_dir() else "not a regular file"
        raise LockstepError(f"{candidate} is {kind}, but a text file is expected there.", "Name a file.", code=2)
    raise _missing(path)


def _missing(path: Path) -> LockstepError:
    message = f"The text file {path} does not exist, nor with {', '.join(COMPRESSED[:-1])} or {COMPRESSED[-1]}."
    remedy = "Check data.folder and the names in data.train, data.validation and data.test (without language ending)."
    try:
        near = difflib.get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=5, cutoff=0.5)
    except OSError:
        return LockstepError(message, f"There is no folder {path.parent}. {remedy}", code=2)
    return LockstepError(message, f"Similar names there: {', '.join(near)}. {remedy}" if near else remedy, code=2)


def _no_permission(path: Path) -> LockstepError:
    return LockstepError(f"{path} may not be read by this user.", f"Give read permission: chmod +r {path}.")


def _damaged(path: Path, error: Exception) -> LockstepError:
    return LockstepError(f"The compressed file {path} is damaged or cut off ({error}).", "Copy or download it again.")
