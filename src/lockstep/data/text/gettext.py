"""Reads sentence pairs from gettext catalogues: `.po` (text) and `.mo` (compiled).

A message and its translation are a pair: msgid is the source and msgstr the target. They are swapped if the header says
that the translations are in the source language (`Language: de` with languages de, en). The header, messages without
translation, and fuzzy or obsolete messages are skipped, because nobody has approved them. Of a message with plural forms
the first form is used: msgid with msgstr[0]. A line break inside a message becomes a space.
"""

import codecs
import re
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from lockstep.data.text.compressed import read_blocks
from lockstep.data.text.languages import matches_language
from lockstep.data.text.line_reader import count_limit_bytes, read_line_blocks
from lockstep.errors import LockstepError

_KEYWORD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr)(?:\[(\d+)\])?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CHARSET = re.compile(rb"charset=([\w.:-]+)")
_LANGUAGE = re.compile(r"^Language:\s*([\w@.-]+)", re.MULTILINE)
_MO_MAGIC = 0x950412DE
COMPILED_BYTES = 1 << 28


def read(
    path: Path, languages: tuple[str, str], limit: int = sys.maxsize, compiled: bool = False
) -> Iterator[tuple[str, str]]:
    """Yields the pairs of a catalogue in the order of the file. Messages of more than `limit` characters are cut, but stay
    longer than that."""
    messages = _read_compiled(path, _read_all(path)) if compiled else _read_text(path, limit)
    swapped = False
    for message, translation in messages:
        if not message:  # the header
            language = _LANGUAGE.search(translation)
            swapped = language is not None and _is_source(language[1], languages)
        elif translation.strip():
            source, target = (translation, message) if swapped else (message, translation)
            yield _join_lines(source, limit), _join_lines(target, limit)


def read_language(path: Path, compiled: bool) -> str | None:
    """Returns the language of the translations that the header names, or None."""
    messages = _read_compiled(path, _read_all(path)) if compiled else _read_text(path, sys.maxsize)
    message, header = next(messages, ("", ""))
    language = _LANGUAGE.search(header) if not message else None
    return language[1] if language else None


def _join_lines(text: str, limit: int) -> str:
    return " ".join(text.split()) if len(text) <= limit else text[: limit + 1].replace("\n", " ")


def _read_all(path: Path) -> bytes:
    """Returns the content of a compiled catalogue, whose tables may point anywhere in the file."""
    blocks, size = [], 0
    for block in read_blocks(path):
        blocks.append(block)
        size += len(block)
        if size > COMPILED_BYTES:
            raise LockstepError(
                f"{path} has more than {COMPILED_BYTES >> 20} MB, too much for a compiled catalogue.",
                "Use the .po file it was compiled from (msgunfmt makes one).",
            )
    return b"".join(blocks)


def _is_source(language: str, languages: tuple[str, str]) -> bool:
    source, target = languages
    return matches_language(source, language) and not matches_language(target, language)


@dataclass
class _Entry:
    """The fields read so far of the current message."""

    fields: dict[str, str] = field(default_factory=dict)
    fuzzy: bool = False


def _read_text(path: Path, limit: int) -> Iterator[tuple[str, str]]:
    limit_bytes = 2 * count_limit_bytes(limit)  # an escaped character may take eight bytes
    blocks = read_line_blocks(path, limit_bytes)
    head = next(blocks, b"").removeprefix(codecs.BOM_UTF8)
    charset = _find_charset(path, head)
    lines = (line for block in chain([head], blocks) for line in block.removesuffix(b"\n").split(b"\n"))
    entry, current = _Entry(), ""
    for number, raw in enumerate(lines, start=1):
        try:
            line = raw.decode(charset).strip()
        except UnicodeDecodeError:
            raise LockstepError(
                f"Line {number} of {path} is not valid {charset}.",
                "Convert the catalogue, for example: msgconv --to-code=UTF-8.",
            ) from None
        if line.startswith("#~") or not line:
            continue
        if line.startswith("#"):
            if "msgstr" in entry.fields:
                yield from _finish(entry)
                entry, current = _Entry(), ""
            entry.fuzzy |= line.startswith("#,") and "fuzzy" in line
            continue
        if keyword := _KEYWORD.fullmatch(line):
            name, form, line = keyword[1], keyword[2], keyword[3]
            if name in ("msgctxt", "msgid") and "msgstr" in entry.fields:
                yield from _finish(entry)
                entry = _Entry()
            current = name if form in (None, "0") else f"{name}[{form}]"
            entry.fields[current] = ""
        if len(raw) > limit_bytes - 4:  # the reader may have cut it
            line = line.removesuffix("\\") + '"'
        if not current or len(line) < 2 or line[0] != '"' or line[-1] != '"':
            raise LockstepError(
                f"Line {number} of {path} is neither a keyword with a quoted text, a quoted text nor a comment.",
                "Correct that line; `msgfmt --check` shows what is wrong.",
            )
        if len(entry.fields[current]) <= limit:
            entry.fields[current] += _ESCAPE.sub(_unescape, line[1:-1])
    yield from _finish(entry)


def _finish(entry: _Entry) -> Iterator[tuple[str, str]]:
    """Yields the message and its translation, unless the message is fuzzy."""
    message = entry.fields.get("msgid")
    if message is not None and (not entry.fuzzy or not message):
        yield message, entry.fields.get("msgstr", "")


def _unescape(escape: re.Match[str]) -> str:
    hexadecimal, octal, letter = escape.groups()
    if hexadecimal or octal:
        return chr(int(hexadecimal, 16) if hexadecimal else int(octal, 8))
    return _LETTERS.get(letter, letter)


def _find_charset(path: Path, content: bytes) -> str:
    declared = _CHARSET.search(content)
    name = declared[1].decode() if declared else "UTF-8"
    try:
        "".encode(name)
    except LookupError:
        if name == "CHARSET":  # the placeholder in a template
            return "UTF-8"
        raise LockstepError(f"{path} is in the unknown encoding {name}.", "Convert it to UTF-8 with msgconv.") from None
    return name


def _read_compiled(path: Path, content: bytes) -> Iterator[tuple[str, str]]:
    """Yields messages and translations. The file has a table of (length, offset) for each of the two."""
    order = next((order for order in "<>" if content[:4] == struct.pack(f"{order}I", _MO_MAGIC)), None)
    if order is None:
        raise LockstepError(
            f"{path} is not a compiled gettext catalogue.", "Compile it again: msgfmt app.po -o app.mo."
        )
    charset = _find_charset(path, content)
    try:
        count, messages, translations = struct.unpack_from(f"{order}3I", content, 8)
    except struct.error:
        raise _cut_off_error(path, len(content)) from None
    for number in range(count):
        pair = []
        for table in (messages, translations):
            try:
                length, start = struct.unpack_from(f"{order}2I", content, table + 8 * number)
            except struct.error:
                raise _cut_off_error(path, len(content)) from None
            if start + length > len(content):
                raise _cut_off_error(path, len(content))
            try:
                pair.append(content[start : start + length].decode(charset).split("\0")[0])
            except UnicodeDecodeError:
                raise LockstepError(
                    f"Message {number + 1} of {path} (byte {start}) is not valid {charset}.",
                    "Compile it again from a catalogue in UTF-8.",
                ) from None
        yield pair[0].rpartition("\x04")[2], pair[1]  # the context comes before the message


def _cut_off_error(path: Path, size: int) -> LockstepError:
    return LockstepError(f"{path} is cut off after {size} bytes.", "Copy it again, or compile it again with msgfmt.")
