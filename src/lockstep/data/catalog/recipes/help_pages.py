"""Sentence pairs from two translations of the same HTML help pages.

LibreOffice's help is written in English and translated by people, paragraph by paragraph; both languages keep the `id`
of each paragraph. Paragraphs with the same page and `id` are therefore translations of each other. What is no language
(code, key names, markup, numbers) and what was left untranslated is kept out.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

from lockstep.data.catalog.entries import CatalogEntry
from lockstep.data.catalog.recipes.archive import contents
from lockstep.data.catalog.recipes.pairs import write
from lockstep.errors import LockstepError

Pair = tuple[str, str]
PAGE = re.compile(r"/help/[^/]+/(text/.*\.html)$")
PARAGRAPH = re.compile(
    r'<(?P<tag>p|h[1-6]) id="(?P<id>(?:par|hd)_[^"]*)"(?P<attributes>[^>]*)>(?P<html>.*?)</(?P=tag)>', re.DOTALL
)
"""The pages are made by a program that always writes a paragraph like this, and never one inside another."""
CLASS = re.compile(r'class="([^"]*)"')
NO_LANGUAGE = re.compile(r"code|image|related|youtube")
"""Classes of paragraphs that hold no sentence."""
LITERAL = {"literal", "input", "code", "keycode"}
"""Classes of what is typed as it stands: commands, formulas, keys."""
WITHOUT_END = {"br", "img", "meta", "input", "hr", "link"}
SWITCH, DEFAULT = "switchinline", "default"
"""Class of an element that holds wordings for several systems, and how the `id` of the common one starts."""
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
ENGLISH = re.compile(r"\b(?:the|of|is|are|this|you|with|from|your|which|can|be|to|or|for)\b", re.IGNORECASE)


class Inner(HTMLParser):
    """The text inside a paragraph, without its markup."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.literal_chars = 0
        self._open: list[tuple[str, str, str]] = []  # tag, class and id of the elements that are open
        self._switches: list[dict[str, str]] = []  # texts of the open switches, by kind of system
        self.feed(html)
        self.close()
        while self._open:
            self._close_last()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "br":
            self.handle_data("\n")
        elif tag not in WITHOUT_END:
            self._open.append((tag, given.get("class", ""), given.get("id", "")))
            if given.get("class") == SWITCH:
                self._switches.append({})

    def handle_endtag(self, tag: str) -> None:
        if any(tag == opened for opened, _, _ in self._open):
            while self._close_last() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if any(kind in LITERAL for _, kind, _ in self._open):
            self.literal_chars += len(data.strip())
        switches = [place for place, (_, kind, _) in enumerate(self._open) if kind == SWITCH]
        if not switches:
            self.text += data
        elif len(self._open) > switches[-1] + 1:  # text between the options of a switch is layout
            _, kind, name = self._open[switches[-1] + 1]
            option = DEFAULT if name.startswith(DEFAULT) else kind
            self._switches[-1][option] = self._switches[-1].get(option, "") + data

    def _close_last(self) -> str:
        tag, kind, _ = self._open.pop()
        if kind == SWITCH:  # of wordings for several systems one is taken: all of them would be no sentence
            options = self._switches.pop()
            self.handle_data(options.get(DEFAULT) or next(iter(options.values()), ""))
        return tag


def paragraphs(page: str) -> Iterator[tuple[str, str]]:
    """`id` and text of the paragraphs of a page that hold language."""
    for found in PARAGRAPH.finditer(page):
        name, attributes, html = found.group("id", "attributes", "html")
        kind = CLASS.search(attributes)
        if kind and NO_LANGUAGE.search(kind[1]):
            continue
        if "<" not in html:
            yield name, unescape(html)
        elif (inner := Inner(html)).literal_chars * 2 < len(inner.text.strip()):
            yield name, inner.text


def page_pairs(source: str, target: str) -> Iterator[Pair]:
    """The sentence pairs of one page in two languages."""
    targets = dict(_numbered(paragraphs(target)))
    for key, text in _numbered(paragraphs(source)):
        if key in targets:
            yield from (pair for pair in sentence_pairs(text, targets[key]) if is_translation(*pair))


def _numbered(found: Iterable[tuple[str, str]]) -> Iterator[tuple[tuple[str, int], str]]:
    """An `id` may come again where a page includes parts of another: the n-th belongs to the n-th."""
    seen: Counter[str] = Counter()
    for name, text in found:
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
    return len(set(ENGLISH.findall(target))) < 2


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


def build(entry: CatalogEntry, pieces: Mapping[str, Path], folder: Path) -> dict[str, int]:
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
