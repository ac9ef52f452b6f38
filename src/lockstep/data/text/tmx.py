"""Reads sentence pairs from a translation memory (TMX) as a stream: only one unit is in memory at a time.

A unit gives a pair if it has a segment in both languages. A wanted language without a region matches every region (`en`
matches `en-US`); of several matching segments the first one is used. The content of inline tags (`<bpt>`, `<ph>`, ...) is
code of the document and is dropped; a code for a break (`<br/>`, `</p>`, `\\n`) becomes a space. Highlighted text (`<hi>`)
stays.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from lockstep.data.text.compressed import read_blocks
from lockstep.data.text.languages import matches_language
from lockstep.errors import LockstepError

_CODE = {"bpt", "ept", "it", "ph", "ut"}
_BREAK = re.compile(r"</?\s*(br|p|div|li|tr|td|th|tab|h[1-6])\b|\\[nrt]|[\n\t]", re.IGNORECASE)
"""A code that separates words."""
_MOST_CODE = 200
"""Characters of a code that are looked at."""
_SHOWN_LANGUAGES = 8


def read(path: Path, languages: tuple[str, str], limit: int = sys.maxsize) -> Iterator[tuple[str, str]]:
    """Yields the pairs of a TMX file in the order of the file. Segments of more than `limit` characters are cut, but stay
    longer than that."""
    units = _Units(languages, limit)
    parser = expat.ParserCreate(namespace_separator=None)
    parser.buffer_text = True
    parser.buffer_size = 1 << 17
    parser.StartElementHandler = units.start
    parser.EndElementHandler = units.end
    parser.CharacterDataHandler = units.text
    count = 0
    try:
        for block in read_blocks(path):
            parser.Parse(block, False)
            pairs = units.take()
            count += len(pairs)
            yield from pairs
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        position = f"line {parser.ErrorLineNumber}, column {parser.ErrorColumnNumber + 1}"
        why = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
        raise LockstepError(
            f"{path} is not well-formed XML at {position}: {why}.",
            "If the end is missing, copy or download the file again; otherwise correct it there (xmllint shows where).",
        ) from None
    pairs = units.take()
    yield from pairs
    if not count + len(pairs):
        shown = ", ".join(sorted(units.languages)[:_SHOWN_LANGUAGES]) or "no language"
        raise LockstepError(
            f"{path} has no unit with both {languages[0]} and {languages[1]}: it has {shown}.",
            "Set data.languages to two of these, or take the file out of the data settings.",
            code=2,
        )


class _Units:
    """Collects the pairs of finished units from the events of the parser."""

    def __init__(self, wanted: tuple[str, str], limit: int) -> None:
        self.wanted = wanted
        self._limit = limit
        self._ready: list[tuple[str, str]] = []
        self.languages: set[str] = set()
        self._segments: dict[str, str] = {}  # of the unit being read, by wanted language
        self._language: str | None = None  # the wanted language of the variant being read
        self._text: list[str] | None = None
        self._length = 0  # characters in `_text`
        self._code_depth = 0
        self._code = ""
        self._matches: dict[str, str | None] = {}

    def take(self) -> list[tuple[str, str]]:
        """Returns the pairs that are finished since the last call."""
        pairs, self._ready = self._ready, []
        return pairs

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "tu":
            self._segments = {}
        elif name == "tuv":
            self._language = self._match(attributes.get("xml:lang") or attributes.get("lang") or "")
        elif name == "seg":
            self._text, self._length, self._code_depth = [], 0, 0
        elif name in _CODE:
            self._code_depth, self._code = self._code_depth + 1, ""

    def text(self, data: str) -> None:
        if self._text is not None and self._code_depth == 0 and self._length <= self._limit:
            self._text.append(data)
            self._length += len(data)
        elif self._code_depth and len(self._code) < _MOST_CODE:
            self._code += data[:_MOST_CODE]

    def end(self, name: str) -> None:
        if name in _CODE:
            self._code_depth -= 1
            if self._text is not None and _BREAK.search(self._code):
                self._text.append(" ")
                self._length += 1
            self._code = ""
        elif name == "seg" and self._text is not None:
            if self._language is not None:
                text = "".join(self._text)
                short = text if self._length > self._limit else " ".join(text.split())
                self._segments.setdefault(self._language, short.replace("\n", " "))
            self._text = None
        elif name == "tu" and len(self._segments) == 2:
            source, target = self.wanted
            self._ready.append((self._segments[source], self._segments[target]))

    def _match(self, code: str) -> str | None:
        """Returns the wanted language that a language code matches. Results are cached: a file has few distinct codes."""
        if code not in self._matches:
            self.languages.add(code)
            self._matches[code] = next((wanted for wanted in self.wanted if matches_language(wanted, code)), None)
        return self._matches[code]
