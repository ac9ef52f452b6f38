"""Reads sentence pairs from a CSV file as a stream: two columns, or a header that names the columns of both languages.

Columns are separated by commas or semicolons, and fields may be quoted. A line break inside a field becomes a space.
"""

import csv
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.data.text.encodings import advise_conversion
from lockstep.data.text.languages import find_code_in, is_known, matches_language
from lockstep.data.text.line_reader import count_limit_bytes, read_line_blocks
from lockstep.data.text.text_block import SKIP, BadReason, BadRow, columns_error
from lockstep.errors import LockstepError

if TYPE_CHECKING:
    from _csv import Reader

DELIMITERS = ",;\t"
_SAMPLE_LINES = 50
_HEADINGS = ("source", "src"), ("target", "tgt", "trg", "translation")
_NUMBERS = ("id", "no")


def read(path: Path, languages: tuple[str, str], limit: int, skip_bad: bool) -> Iterator[tuple[str, str] | BadRow]:
    """Yields the pairs in the order of the file. Texts may be cut, but stay longer than `limit` characters then."""
    lines = _read_lines(path, limit)
    head = list(islice(lines, _SAMPLE_LINES))
    if not head:
        raise LockstepError(f"The text file {path} is empty.", "Fill it, or remove its name from the data settings.")
    delimiter = choose_delimiter(head)
    csv.field_size_limit(max(csv.field_size_limit(), 2 * count_limit_bytes(min(limit, 1 << 24))))
    rows = csv.reader(chain(head, lines), delimiter=delimiter)
    columns: tuple[int, int] | None = None
    for number, (line, row, reason) in enumerate(_iterate(path, rows, skip_bad)):
        if number == 0 and (columns := find_columns(row, languages)) is not None:
            continue
        if number == 0:
            _check_header(path, row, languages)
        cells = [cell.replace("\n", " ").replace("\r", " ") for cell in row]
        characters = sum(map(len, cells))
        has_pair = len(cells) == 2 or (columns is not None and len(cells) > max(columns))
        source, target = (cells[column] for column in columns or (0, 1)) if has_pair else (" ".join(cells), "")
        if reason is not None:
            yield BadRow(reason, _show(source), _show(target))
        elif has_pair:
            yield source, target
        elif skip_bad or characters > limit:
            yield BadRow("characters" if characters > limit else "columns", " ".join(source.split()))
        else:
            raise columns_error(line, path, len(row), f"one {delimiter!r}")


def _check_header(path: Path, row: Sequence[str], languages: tuple[str, str]) -> None:
    """Raises if the first row names languages, and not the wanted ones."""
    named = list_languages(row)
    if named and "und" not in languages:
        raise LockstepError(
            f"The header of {path} names {', '.join(named)}, but data.languages is [{', '.join(languages)}].",
            f"Set data.languages=[{','.join(named[:2])}], or name the columns {' and '.join(languages)} in the file.",
            code=2,
        )


def _show(text: str) -> str:
    """Returns the text with U+FFFD for every byte that is not UTF-8."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def choose_delimiter(lines: Sequence[str]) -> str:
    """Returns the delimiter with which the most rows have as many columns as the first row, or else two columns."""

    def rank(delimiter: str) -> tuple[int, int]:
        sizes = [len(row) for row in _parse(lines, delimiter)]
        return sizes.count(sizes[0]) if sizes and sizes[0] > 1 else 0, sizes.count(2)

    return max(DELIMITERS, key=rank)


def is_csv(lines: Sequence[str], share: float) -> bool:
    """Do at least this share of the lines have two columns, with quotes understood?"""
    rows = _parse(lines, choose_delimiter(lines))
    return sum(len(row) == 2 for row in rows) >= share * max(1, len(rows))


def read_header(lines: Sequence[str]) -> list[str]:
    """Returns the cells of the first row."""
    rows = _parse(lines[:1], choose_delimiter(lines[:_SAMPLE_LINES]))
    return [cell.strip() for cell in rows[0]] if rows else []


def _parse(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return []


def find_columns(row: Sequence[str], languages: tuple[str, str]) -> tuple[int, int] | None:
    """Returns the columns of both languages if this row is a header, or None."""
    names = [cell.strip().lstrip("\ufeff") for cell in row]
    for matches in (_is_language, _names_language, _is_heading):
        places = [next((i for i, name in enumerate(names) if matches(side, languages, name)), None) for side in (0, 1)]
        if places[0] is not None and places[1] is not None and places[0] != places[1]:
            return places[0], places[1]
    return None


def _is_language(side: int, languages: tuple[str, str], name: str) -> bool:
    return matches_language(languages[side], name)


def _names_language(side: int, languages: tuple[str, str], name: str) -> bool:
    return (code := find_code_in(name)) is not None and matches_language(languages[side], code)


def _is_heading(side: int, languages: tuple[str, str], name: str) -> bool:
    return name.lower() in _HEADINGS[side]


def list_languages(header: Sequence[str]) -> list[str]:
    """Returns the language codes that a header names, in the order of the columns; none if the row is not a header."""
    codes = [find_code_in(cell) or cell.strip() for cell in header if find_code_in(cell) or is_known(cell)]
    if len(codes) > 2:  # a column of numbers
        codes = [code for code in codes if code not in _NUMBERS]
    return codes if len(set(codes)) > 1 and (len(header) > 2 or len(codes) == 2) else []


def _read_lines(path: Path, limit: int) -> Iterator[str]:
    """Yields the lines with their line feeds. Bytes that are not UTF-8 stay as surrogates."""
    for block in read_line_blocks(path, 2 * count_limit_bytes(limit), keep_quotes=True):
        for line in block.removesuffix(b"\n").split(b"\n"):
            yield line.decode(errors="surrogateescape").removeprefix("\ufeff") + "\n"


def _iterate(path: Path, rows: "Reader", skip_bad: bool) -> Iterator[tuple[int, list[str], BadReason | None]]:
    """Yields the rows with the number of their first line. What is no row or not UTF-8 is an error, or has a reason with
    `skip_bad`."""
    while True:
        first = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            if not skip_bad:
                message = f"Line {rows.line_num} of {path} is not valid CSV: {error}."
                raise LockstepError(message, f"Look for a quotation mark that is not closed. {SKIP}") from None
            yield first, [""], "columns"
            continue
        if not row:  # an empty line
            continue
        text = " ".join(row)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            if not skip_bad:
                message = f"Line {first + text.count(chr(10), 0, error.start)} of {path} is not valid UTF-8."
                advice = advise_conversion(text.encode(errors="surrogateescape"))
                raise LockstepError(message, f"{advice} {SKIP}") from None
            yield first, row, "undecodable"
            continue
        yield first, row, None
