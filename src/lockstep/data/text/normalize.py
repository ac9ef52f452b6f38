"""Normalizes text: training text, the source side of validation and test text, and what a model is asked to translate.

- HTML entities become characters, also if they were escaped twice (`&amp;quot;`).
- Invisible characters are removed: soft hyphens, byte order marks, zero-width characters, marks of text direction. Joiners
  stay where a script needs them (Persian, Indic and other scripts) and in emoji.
- Unicode normalization form C: a letter and its accent become one character.
- Non-breaking, narrow and other Unicode spaces become spaces.
"""

import html
import re
import unicodedata
from collections.abc import Callable
from html.entities import html5
from typing import Literal

Change = Literal["entities", "invisible", "unicode", "spaces"]

_AMPERSAND = r"amp;|#0{0,5}38;|#[xX]0{0,4}26;"
_ENTITY = re.compile(rf"&(?:{_AMPERSAND})*(#[0-9]{{1,7}};|#[xX][0-9a-fA-F]{{1,6}};|[A-Za-z][A-Za-z0-9]{{1,31}};)")
_JOINED = r"\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\u1b00-\u1bff\ua980-\ua9df\ufb50-\ufdff\ufe70-\ufefc"
_EMOJI = r"\u2600-\u27bf\ufe0f\U0001f000-\U0001faff"
_INVISIBLE = re.compile(
    r"[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
    rf"|(?<![{_JOINED}])\u200c|(?<![{_JOINED}{_EMOJI}])\u200d"
)
_SPACES = re.compile(r"[\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


def normalize_text(text: str) -> str:
    """Returns the normalized text. Every run of whitespace becomes one space."""
    for is_suspicious, change in _CHANGES.values():
        if is_suspicious(text):
            text = change(text)
    return " ".join(text.split())


def normalize_lines(text: str) -> tuple[str, dict[Change, list[int]]]:
    """Normalizes text in which every line ends with a line feed, except for plain whitespace.

    Returns it with the numbers of the lines that were changed in each way, counted from 0.
    """
    changed: dict[Change, list[int]] = {}
    for name, (is_suspicious, change) in _CHANGES.items():
        if not is_suspicious(text):
            continue
        lines = text.split("\n")
        numbers = []
        for number, line in enumerate(lines):
            if is_suspicious(line) and (new := change(line)) != line:
                lines[number] = new
                numbers.append(number)
        if numbers:
            text, changed[name] = "\n".join(lines), numbers
    return text, changed


def _unescape(text: str) -> str:
    while (new := _ENTITY.sub(_replace_entity, text)) != text:
        text = new
    return text


def _replace_entity(entity: re.Match[str]) -> str:
    name = entity[1]
    if not name.startswith("#") and name not in html5:
        return f"&{name}"
    character = html.unescape(f"&{name}")
    return " " if character in "\r\n" else character


_CHANGES: dict[Change, tuple[Callable[[str], bool], Callable[[str], str]]] = {
    "entities": (lambda text: "&" in text, _unescape),
    "invisible": (
        lambda text: not text.isascii() and _INVISIBLE.search(text) is not None,
        lambda text: _INVISIBLE.sub("", text),
    ),
    "unicode": (
        lambda text: not text.isascii() and not unicodedata.is_normalized("NFC", text),
        lambda text: unicodedata.normalize("NFC", text),
    ),
    "spaces": (
        lambda text: not text.isascii() and _SPACES.search(text) is not None,
        lambda text: _SPACES.sub(" ", text),
    ),
}
"""The changes in their order: whether text may need one, and the function that makes it."""
