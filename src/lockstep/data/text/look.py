"""Looks at the beginning of a text file: format, encoding, compression, and some of its sentences or pairs."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from lockstep.data.data_settings import DataSettings
from lockstep.data.text import csv_table, gettext, parallel_text
from lockstep.data.text.compressed import ENDINGS, read_blocks, strip_compression
from lockstep.data.text.encodings import detect_encoding, guess_encoding, read_head
from lockstep.data.text.find_files import Format, name_format
from lockstep.data.text.languages import find_code
from lockstep.data.text.line_reader import LineReader, count_limit_bytes
from lockstep.data.text.text_block import TextBlock

_MO_MAGIC = (b"\xde\x12\x04\x95", b"\x95\x04\x12\xde")
_TMX_LANGUAGE = re.compile(r"<tuv\b[^>]*?\blang\s*=\s*[\"']([^\"']+)[\"']", re.IGNORECASE)
_BINARY = 0.05
_TWO_COLUMNS = 0.9
"""A file counts as a table if this share of its first rows has two columns."""


@dataclass(frozen=True)
class FileLook:
    """What the beginning of a file shows."""

    path: Path
    format: Format
    encoding: str | None
    """utf-8, utf-16, utf-16-le, utf-16-be or utf-32, which Lockstep reads. Another name is a guess; None: no guess."""
    compression: str | None
    """.gz, .xz, .zst, .bz2 or None."""
    languages: tuple[str, ...]
    """Language codes that the file itself names: in a TMX, in a CSV header (in the order of the columns), in a catalogue
    (only that of the translations). Empty if it names none."""
    columns: tuple[str, ...] = ()
    """The cells of the first row of a CSV file, or of a TSV file most of whose rows are like it."""
    is_text: bool = True
    """False for a binary file such as an image."""

    @property
    def is_readable(self) -> bool:
        """Can Lockstep decode the file?"""
        return self.encoding is not None and self.encoding.startswith("utf-")


def look(path: Path) -> FileLook:
    """Looks at one file. It trusts the ending of the name if that says the format, else it looks at the content."""
    head = read_head(read_blocks(path))
    compression = next((ending for ending in ENDINGS if path.name.endswith(ending)), None)
    kind = name_format(path.name)
    encoding = detect_encoding(head)
    text = head.decode(encoding, errors="replace").removeprefix("\ufeff").replace("\r\n", "\n")
    if kind == "lines":
        kind = "mo" if head.startswith(_MO_MAGIC) else _recognize(text)
    binary = kind in ("mo", "tmx")
    shown: str | None = encoding
    if not binary and encoding == "utf-8" and "\ufffd" in text.rstrip("\ufffd"):
        shown = guess_encoding(head)
    columns = tuple(csv_table.read_header(text.split("\n"))) if kind == "csv" else ()
    if kind == "tsv":
        columns = _read_columns(text)
    languages = _find_catalogue_language(path, kind) if kind in ("po", "mo") else _find_languages(kind, text, columns)
    is_text = kind == "mo" or encoding != "utf-8" or not _is_binary(head, text)
    return FileLook(path, kind, shown, compression, languages, columns, is_text)


def _read_columns(text: str) -> tuple[str, ...]:
    """Returns the cells of the first row that has as many as most rows."""
    rows = [line.split("\t") for line in text.split("\n")[:-1] or [text] if line]
    counts = Counter(map(len, rows))
    usual = counts.most_common(1)[0][0] if counts else 2
    return next((tuple(row) for row in rows if len(row) == usual), ("", ""))


def _is_binary(head: bytes, text: str) -> bool:
    """Does the file have zero bytes and much else that is not text?"""
    return 0 in head and (head.count(0) + text.count("\ufffd") > _BINARY * len(head))


def read_sample(file: FileLook, languages: tuple[str, str], count: int = 1000) -> list[tuple[str, str]]:
    """Returns the first pairs of a file that holds both languages."""
    settings = DataSettings(languages=languages, bad_lines="skip", train=[str(file.path)])
    blocks = parallel_text.read_found_blocks(settings, file.format, (file.path,), min(count, parallel_text.READ_LINES))
    return list(islice(_iterate_pairs(settings, blocks), count))


def read_sample_lines(path: Path, count: int = 1000) -> list[str]:
    """Returns the first lines of a file with one sentence per line."""
    limit = DataSettings().line_limit
    part = LineReader(path, count_limit_bytes(limit)).take(count)
    source, _, bad = TextBlock((path, path), 1, (part, part)).decode(limit, skip_bad=True)
    return [line.strip() for number, line in enumerate(source.split("\n")[:-1]) if number not in bad]


def _iterate_pairs(settings: DataSettings, blocks: Iterator[TextBlock]) -> Iterator[tuple[str, str]]:
    for block in blocks:
        source, target, bad = block.decode(settings.line_limit, skip_bad=True)
        sides = (map(str.strip, text.split("\n")[:-1]) for text in (source, target))
        yield from (pair for number, pair in enumerate(zip(*sides, strict=True)) if number not in bad and all(pair))


def _recognize(text: str) -> Format:
    """Returns the format of a file whose name does not tell it."""
    start = text.lstrip()[:2000]
    if "<tmx" in start:
        return "tmx"
    if re.search(r"^msgid\s+\"", text, re.MULTILINE) and re.search(r"^msgstr", text, re.MULTILINE):
        return "po"
    lines = [line for line in text.split("\n")[:-1] or [text] if line]
    if not lines:
        return "lines"
    if sum(line.count("\t") == 1 for line in lines) >= _TWO_COLUMNS * len(lines):
        return "tsv"
    return "csv" if csv_table.is_csv(lines, _TWO_COLUMNS) else "lines"


def _find_catalogue_language(path: Path, kind: Format) -> tuple[str, ...]:
    """The language of the translations, from the header or from a path such as fr/LC_MESSAGES/app.mo."""
    if language := gettext.read_language(path, compiled=kind == "mo"):
        return (language,)
    folders = [part for part in path.absolute().parts[:-1] if part != "LC_MESSAGES"]
    names = [strip_compression(path.name).split(".")[0], *folders[-1:]]
    return tuple(code for name in names if (code := find_code(re.split(r"[_@.]", name)[0])) is not None)[:1]


def _find_languages(kind: Format, text: str, columns: tuple[str, ...]) -> tuple[str, ...]:
    if kind == "tmx":
        return tuple(dict.fromkeys(_TMX_LANGUAGE.findall(text)))
    if kind == "csv":
        return tuple(csv_table.list_languages(columns))
    return ()
