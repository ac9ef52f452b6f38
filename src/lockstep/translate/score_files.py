"""Reads a source text and its reference translation: plain or compressed UTF-8 files with one sentence per line."""

from pathlib import Path

from lockstep.data.text.compressed import read_blocks
from lockstep.errors import LockstepError


def read_pairs(source: Path, reference: Path) -> tuple[list[str], list[str]]:
    """Returns the lines of both files. Raises if one is missing or empty, or if their numbers of lines differ."""
    sources, references = read_lines(source), read_lines(reference)
    if len(sources) != len(references):
        raise LockstepError(
            f"{source} has {_count(sources)}, and {reference} has {_count(references)}.",
            "Line i of the reference must be the translation of line i of the source.",
            code=2,
        )
    return sources, references


def _count(lines: list[str]) -> str:
    return f"{len(lines):,} line{'s' * (len(lines) != 1)}"


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a file, without line ends. A name that ends in .gz, .xz, .zst or .bz2 is uncompressed."""
    if not path.exists():
        raise LockstepError(f"{path} does not exist.", "Check the path.", code=2)
    if path.is_dir():
        raise LockstepError(f"{path} is a folder.", "Name a text file.", code=2)
    content = b"".join(read_blocks(path))
    if not content.strip():
        raise LockstepError(f"{path} is empty.", "Name a text file with one sentence per line.", code=2)
    lines = content.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").split(b"\n")
    return [_decode(line, number, path) for number, line in enumerate(lines, start=1)]


def _decode(line: bytes, number: int, path: Path) -> str:
    try:
        return line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError:
        remedy = "Convert it, for example with iconv."
        raise LockstepError(f"{path} is not UTF-8 text: see line {number:,}.", remedy, code=2) from None
