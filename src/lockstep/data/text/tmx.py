"""Sentence pairs from a translation memory (TMX), read as a stream: a file of any size needs the memory of one unit.

A unit gives a pair when it has a segment in both languages; a language asked for without region takes every region
(`en` takes `en-US`), and of several matching segments the first. What formatting marks (`<bpt>`, `<ph>`, ...) enclose is
code of the document and left out; highlighted text (`<hi>`) is kept.
"""

from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from lockstep.data.text.compressed import blocks
from lockstep.data.text.languages import same_language
from lockstep.errors import LockstepError

_CODE = {"bpt", "ept", "it", "ph", "ut"}
_SHOWN_LANGUAGES = 8


def read(path: Path, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """The pairs of a TMX file, in its order."""
    units = _Units(languages)
    parser = expat.ParserCreate(namespace_separator=None)
    parser.buffer_text = True
    parser.StartElementHandler = units.start
    parser.EndElementHandler = units.end
    parser.CharacterDataHandler = units.text
    found = False
    try:
        for block in blocks(path):
            parser.Parse(block, False)
            found = found or bool(units.ready)
            yield from units.take()
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        place = f"line {parser.ErrorLineNumber}, column {parser.ErrorColumnNumber + 1}"
        why = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
        raise LockstepError(
            f"{path} is not well-formed XML at {place}: {why}.",
            "If the end is missing, copy or download it again; otherwise correct that place (xmllint shows it).",
        ) from None
    found = found or bool(units.ready)
    yield from units.take()
    if not found:
        shown = ", ".join(sorted(units.languages)[:_SHOWN_LANGUAGES]) or "no language"
        raise LockstepError(
            f"{path} has no unit with both {languages[0]} and {languages[1]}: it has {shown}.",
            "Set data.languages to two of these, or take the file out of the data settings.",
            code=2,
        )


class _Units:
    """Listens to the parser and collects the pairs of finished units."""

    def __init__(self, wanted: tuple[str, str]) -> None:
        self.wanted = wanted
        self.ready: list[tuple[str, str]] = []
        self.languages: set[str] = set()
        self._segments: dict[str, str] = {}  # of the unit being read, by wanted language
        self._language: str | None = None  # the wanted language of the variant being read
        self._text: list[str] | None = None
        self._code_depth = 0
        self._known: dict[str, str | None] = {}

    def take(self) -> list[tuple[str, str]]:
        ready, self.ready = self.ready, []
        return ready

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "tu":
            self._segments = {}
        elif name == "tuv":
            self._language = self._asked_for(attributes.get("xml:lang") or attributes.get("lang") or "")
        elif name == "seg":
            self._text, self._code_depth = [], 0
        elif name in _CODE:
            self._code_depth += 1

    def text(self, data: str) -> None:
        if self._text is not None and self._code_depth == 0:
            self._text.append(data)

    def end(self, name: str) -> None:
        if name in _CODE:
            self._code_depth -= 1
        elif name == "seg" and self._text is not None:
            if self._language is not None:
                self._segments.setdefault(self._language, " ".join("".join(self._text).split()))
            self._text = None
        elif name == "tu" and len(self._segments) == 2:
            source, target = self.wanted
            self.ready.append((self._segments[source], self._segments[target]))

    def _asked_for(self, marked: str) -> str | None:
        """Which of the wanted languages a mark means; remembered, because files repeat a handful of marks."""
        if marked not in self._known:
            self.languages.add(marked)
            self._known[marked] = next((wanted for wanted in self.wanted if same_language(wanted, marked)), None)
        return self._known[marked]
