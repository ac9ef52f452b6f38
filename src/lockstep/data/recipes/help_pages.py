"""Sentence pairs from two translations of the same HTML help pages.

LibreOffice's help is written in English and translated by people, paragraph by paragraph; both languages keep the `id`
of each paragraph. Paragraphs with the same page and `id` are therefore translations of each other. What is no language
(code, key names, markup, numbers) and what was left untranslated is kept out.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

from lockstep.data.catalog import Entry
from lockstep.data.recipes.archive import contents
from lockstep.data.recipes.pairs import write
from lockstep.errors import LockstepError

Pair = tuple[str, str]
PAGE = re.compile(r"/help/[^/]+/(text/.*\.html)$")
PARAGRAPHS = {"p", "h1", "h2", "h3", "h4", "h5", "h6"}
NO_LANGUAGE = re.compile(r"code|image|related|youtube")
"""Classes of paragraphs that hold no sentence."""
CONTENT = '<div id="DisplayArea"'
"""Where the frame of a page ends and its text begins."""
LITERAL = {"literal", "input", "code", "keycode"}
"""Classes of what is typed as it stands: commands, formulas, keys."""
WITHOUT_END = {"br", "img", "meta", "input", "hr", "link"}
HELD_OUT = {"validation": 20, "test": 30}
"""Of a thousand pages, how many go into each held-out set."""

SENTENCE_END = re.compile(r"(?<=[.!?])[\"”“')]*\s+(?=[\"„“'(]?[A-ZÄÖÜ0-9])")
ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Za-z]|e\.g|i\.e|etc|vs|approx|Fig|No|Nr|bzw|usw|ca|evtl|ggf|inkl|max|min|vgl|Abb|Dr|St)"
    r"|(?<![A-Za-zÄÖÜäöüß]\s)\b\d{1,2})\.$"
)
"""A full stop after these, or after a day or list number, ends no sentence."""
WORD = re.compile(r"[^\W\d_]{2,}")
SIGN = re.compile(r"[=<>{}()\[\];_\\|#$%&]")
NUMBER = re.compile(r"\d+")
ENGLISH_ONLY = {
    "the",
    "of",
    "is",
    "are",
    "this",
    "you",
    "with",
    "from",
    "your",
    "which",
    "can",
    "be",
    "to",
    "or",
    "for",
}


class Page(HTMLParser):
    """The text of every paragraph that has an `id`, in the order of the page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.paragraphs: list[tuple[str, str]] = []
        self._id: str | None = None
        self._tag = ""
        self._text: list[str] = []
        self._literal_chars = 0
        self._open: list[tuple[str, str, str]] = []  # tag, class, id of the elements inside the paragraph
        self._options: list[dict[str, list[str]]] = []  # texts of the switches that are open, by kind of system
        self.feed(html[html.find(CONTENT) :])
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        kind, name = given.get("class", ""), given.get("id", "")
        if self._id is None:
            if tag in PARAGRAPHS and name.startswith(("par_", "hd_")) and not NO_LANGUAGE.search(kind):
                self._id, self._tag, self._text, self._literal_chars = name, tag, [], 0
                self._open, self._options = [], []
        elif tag == "br":
            self._add("\n")
        elif tag not in WITHOUT_END:
            self._open.append((tag, kind, name))
            if kind == "switchinline":
                self._options.append({})

    def handle_endtag(self, tag: str) -> None:
        if self._id is None:
            return
        if tag == self._tag:
            self._finish()
        elif any(tag == opened for opened, _, _ in self._open):
            while self._open:
                opened, kind, _ = self._open.pop()
                if kind == "switchinline":
                    self._close_switch()
                if opened == tag:
                    break

    def handle_data(self, data: str) -> None:
        if self._id is not None:
            self._add(data)

    def _add(self, text: str) -> None:
        if any(kind in LITERAL for _, kind, _ in self._open):
            self._literal_chars += len(text.strip())
        switches = [place for place, (_, kind, _) in enumerate(self._open) if kind == "switchinline"]
        if not switches:
            self._text.append(text)
        elif len(self._open) > switches[-1] + 1:  # text between the options of a switch is layout
            _, kind, name = self._open[switches[-1] + 1]
            option = "" if name.startswith("default") else kind or name
            self._options[-1].setdefault(option, []).append(text)

    def _close_switch(self) -> None:
        """Of wordings for several systems the default one is taken: text for all of them would be no sentence."""
        options = self._options.pop()
        chosen = options.get("", next(iter(options.values()), []))
        self._add("".join(chosen))

    def _finish(self) -> None:
        while self._options:
            self._open = [entry for entry in self._open if entry[1] != "switchinline"]
            self._close_switch()
        text = "".join(self._text)
        if self._id is not None and self._literal_chars * 2 < len(text.strip()):
            self.paragraphs.append((self._id, text))
        self._id = None


def page_pairs(source: str, target: str) -> Iterator[Pair]:
    """The sentence pairs of one page in two languages."""
    targets = dict(_numbered(Page(target).paragraphs))
    for key, text in _numbered(Page(source).paragraphs):
        if key in targets:
            yield from (pair for pair in sentence_pairs(text, targets[key]) if is_translation(*pair))


def _numbered(paragraphs: list[tuple[str, str]]) -> Iterator[tuple[tuple[str, int], str]]:
    """An `id` may come again where a page includes parts of another: the n-th belongs to the n-th."""
    seen: Counter[str] = Counter()
    for name, text in paragraphs:
        yield (name, seen[name]), text
        seen[name] += 1


def sentence_pairs(source: str, target: str) -> list[Pair]:
    """Sentence by sentence where both sides have as many of them, otherwise the paragraph as a whole."""
    sources, targets = sentences(source), sentences(target)
    if len(sources) == len(targets):
        return list(zip(sources, targets, strict=True))
    return [(" ".join(sources), " ".join(targets))]


def sentences(text: str) -> list[str]:
    """Cuts a paragraph after full stops, question and exclamation marks that end a sentence."""
    text = " ".join(text.split())
    found, start = [], 0
    for end in SENTENCE_END.finditer(text):
        piece = text[start : end.end()].strip()
        if not ABBREVIATION.search(piece):
            found.append(piece)
            start = end.end()
    return [*found, text[start:]] if text[start:] else found


def is_translation(source: str, target: str) -> bool:
    """Whether the pair looks like a sentence and its translation."""
    source_words, target_words = WORD.findall(source), WORD.findall(target)
    if len(source_words) < 2 or not target_words or source == target:
        return False
    letters = sum(map(len, source_words)), sum(map(len, target_words))
    if any(2 * count < len(text.replace(" ", "")) for count, text in zip(letters, (source, target), strict=True)):
        return False  # mostly signs and numbers
    if max(letters) > 2.2 * min(letters) + 10:
        return False
    if 12 * len(SIGN.findall(source)) > len(source):
        return False  # a formula
    if 2 * len(set(source.split()).intersection(target.split())) > len(target.split()):
        return False  # names of characters, commands and products
    if sorted(NUMBER.findall(source)) != sorted(NUMBER.findall(target)):
        return False
    return len(ENGLISH_ONLY.intersection(word.lower() for word in target_words)) < 2


def set_of(page: str) -> str:
    """The set of a page, by its name alone, so that a later version of the text keeps it there."""
    place = int.from_bytes(sha256(page.encode()).digest()[:8]) % 1000
    for name, share in HELD_OUT.items():
        if place < share:
            return name
        place -= share
    return "train"


def split(sources: Mapping[str, str], targets: Mapping[str, str]) -> dict[str, list[Pair]]:
    """All pairs of the pages that both languages have, by set.

    Pages include paragraphs of each other, so a pair is kept once, and no training pair shares a sentence, on either
    side, with validation or test.
    """
    found: dict[str, dict[Pair, None]] = {"test": {}, "validation": {}, "train": {}}
    for page in sorted(sources.keys() & targets.keys()):
        found[set_of(page)].update(dict.fromkeys(page_pairs(sources[page], targets[page])))
    taken: set[str] = set()
    result: dict[str, list[Pair]] = {}
    for name, pairs in found.items():
        result[name] = [pair for pair in pairs if taken.isdisjoint(pair)]
        taken.update(sentence for pair in result[name] for sentence in pair)
    return result


def build(entry: Entry, pieces: Mapping[str, Path], folder: Path) -> dict[str, int]:
    """Writes SET.LANGUAGE for each set from one package of pages per language (in the order of the languages)."""
    assert entry.languages is not None
    sources, targets = (_pages(path) for path in pieces.values())
    sets = split(sources, targets)
    if not sets["train"]:
        raise LockstepError("The packages hold no help pages in common.", "Their layout is not the one known here.")
    for name, pairs in sets.items():
        write(folder, name, entry.languages, pairs)
    return {name: len(sets[name]) for name in ("train", "validation", "test")}


def _pages(package: Path) -> dict[str, str]:
    """The pages of a package by their path below the folder of the language."""
    pages = {}
    for name, content in contents(package):
        if found := PAGE.search(name):
            pages[found[1]] = content.read().decode("utf-8", "replace")
    return pages
