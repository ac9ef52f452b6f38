"""Reads sentence pairs from a CSV file as a stream: two columns, or a header that names the columns of both languages.

Columns are separated by commas or semicolons, and fields may be quoted. A line break inside a field becomes a space. A
quotation mark that is never closed would swallow the rest of the file: only the line that opens it is lost.
"""

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Self

from lockstep.data.text.encodings import advise_conversion
from lockstep.data.text.languages import find_code_in, is_known, matches_language
from lockstep.data.text.line_reader import count_limit_bytes, read_line_blocks
from lockstep.data.text.text_block import SKIP, BadReason, BadRow, columns_error
from lockstep.errors import LockstepError

DELIMITERS = ",;\t"
_SAMPLE_LINES = 50
_HEADINGS = ("source", "src"), ("target", "tgt", "trg", "translation")
_NUMBERS = ("id", "no")
MOST_LINES = 50
"""A row of more lines has a quotation mark that is not closed."""


def read(path: Path, languages: tuple[str, str], limit: int, skip_bad: bool) -> Iterator[tuple[str, str] | BadRow]:
    """Yields the pairs in the order of the file. Texts may be cut, but stay longer than `limit` characters then."""
    lines = _read_lines(path, limit)
    head = list(islice(lines, _SAMPLE_LINES))
    if not head:
        raise LockstepError(f"The text file {path} is empty.", "Fill it, or remove its name from the data settings.")
    delimiter = choose_delimiter(head)
    csv.field_size_limit(max(csv.field_size_limit(), 2 * count_limit_bytes(min(limit, 1 << 24))))
    columns: tuple[int, int] | None = None
    width = 2
    for number, (line, row, reason) in enumerate(_iterate(path, _RowLines(chain(head, lines)), delimiter, skip_bad)):
        if number == 0 and (columns := find_columns(row, languages)) is not None:
            width = len(row)
            continue
        if number == 0:
            _check_header(path, row, languages)
        cells = [cell.replace("\n", " ").replace("\r", " ") for cell in row]
        characters = sum(map(len, cells))
        has_pair = max(columns or (1,)) < len(cells) and not any(cells[width:])
        source, target = (cells[column] for column in columns or (0, 1)) if has_pair else (" ".join(cells), "")
        if reason is not None:
            yield BadRow(reason, _show(source), _show(target))
        elif has_pair:
            yield source, target
        elif skip_bad or characters > limit:
            yield BadRow("characters" if characters > limit else "columns", " ".join(source.split()))
        else:
            raise _explain_columns(line, path, len(row), width if columns else None, delimiter)


def _explain_columns(line: int, path: Path, count: int, width: int | None, delimiter: str) -> LockstepError:
    """Returns the error for a row that is no pair. `width` is the number of columns of the header, if there is one."""
    if width is None:
        return columns_error(line, path, count, f"one {delimiter!r}")
    columns = f"{count} column{'s' * (count != 1)}"
    message = f"Line {line} of {path} has {columns}, but its header has {width}."
    return LockstepError(message, f"A text with {delimiter!r} in it must be in quotation marks. {SKIP}")


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


class _UnclosedQuote(Exception):
    """A row does not end."""


class _RowLines:
    """The lines of a file for csv.reader, which asks for more than one only within quotation marks."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines, self._returned = lines, deque[str]()
        self.row: list[str] = []  # the lines of this row so far
        self.number = 1  # of the next line

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        if len(self.row) >= MOST_LINES:
            raise _UnclosedQuote
        line = self._returned.popleft() if self._returned else next(self._lines, None)
        if line is None and self.row:
            raise _UnclosedQuote
        if line is None:
            raise StopIteration
        self.row.append(line)
        self.number += 1
        return line

    def drop_first(self) -> str:
        """Returns the first line of the row. The others will be read again."""
        first, *others = self.row
        self._returned.extendleft(reversed(others))
        self.number -= len(others)
        self.row = []
        return first


def _iterate(
    path: Path, lines: _RowLines, delimiter: str, skip_bad: bool
) -> Iterator[tuple[int, list[str], BadReason | None]]:
    """Yields the rows with the number of their first line. What is no row or not UTF-8 is an error, or has a reason with
    `skip_bad`."""
    rows = csv.reader(lines, delimiter=delimiter)
    while True:
        first, lines.row = lines.number, []
        try:
            row = next(rows)
        except StopIteration:
            return
        except _UnclosedQuote:
            if not skip_bad:
                message = f"Line {first} of {path} opens a quotation mark that is not closed."
                raise LockstepError(message, f"Close it, or write it twice if it belongs to the text. {SKIP}") from None
            rows = csv.reader(lines, delimiter=delimiter)
            yield first, [lines.drop_first().rstrip("\n")], "columns"
            continue
        except csv.Error as error:
            if not skip_bad:
                message = f"Line {first} of {path} is not valid CSV: {error}."
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
