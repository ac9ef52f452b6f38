"""Makes sentence pairs from two languages of the same HTML help pages.

LibreOffice's help is written in English and translated by people, paragraph by paragraph. Both languages have the same
`id` for each paragraph, so paragraphs with the same page and `id` are translations of each other. Code, key names, markup,
numbers and untranslated text are skipped.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

from lockstep.data.catalog.entries import CatalogEntry
from lockstep.data.catalog.recipes.archive import read_archive
from lockstep.data.catalog.recipes.pairs import write_pairs
from lockstep.errors import LockstepError

Pair = tuple[str, str]
PAGE = re.compile(r"/help/[^/]+/(text/.*\.html)$")
PARAGRAPH = re.compile(
    r'<(?P<tag>p|h[1-6]) id="(?P<id>(?:par|hd)_[^"]*)"(?P<attributes>[^>]*)>(?P<html>.*?)</(?P=tag)>', re.DOTALL
)
"""The pages are generated: every paragraph has this form, and paragraphs are never nested."""
CLASS = re.compile(r'class="([^"]*)"')
NO_LANGUAGE = re.compile(r"code|image|related|youtube")
"""Classes of paragraphs without sentences."""
LITERAL = {"literal", "input", "code", "keycode"}
"""Classes of literal text: commands, formulas, keys."""
WITHOUT_END = {"br", "img", "meta", "input", "hr", "link"}
SWITCH, DEFAULT = "switchinline", "default"
"""Class of an element with one wording for each operating system, and the prefix of the `id` of the default wording."""
HELD_OUT = {"validation": 20, "test": 30}
"""Number of pages of 1,000 that go into each held-out set."""

SENTENCE_END = re.compile(r"(?<=[.!?])[\"”“')]*\s+(?=[\"„“'(]?[A-ZÄÖÜ0-9])")
ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Za-z]|e\.g|i\.e|etc|vs|approx|Fig|No|Nr|bzw|usw|ca|evtl|ggf|inkl|max|min|vgl|Abb|Dr|St)"
    r"|(?<![A-Za-zÄÖÜäöüß]\s)\b\d{1,2})\.$"
)
"""A full stop after these, or after a day or list number, does not end a sentence."""
WORD = re.compile(r"[^\W\d_]{2,}")
SIGN = re.compile(r"[=<>{}()\[\];_\\|#$%&]")
NUMBER = re.compile(r"\d+")
ENGLISH = re.compile(r"\b(?:the|of|is|are|this|you|with|from|your|which|can|be|to|or|for)\b", re.IGNORECASE)


class ParagraphText(HTMLParser):
    """The text of a paragraph without its markup."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.literal_chars = 0
        self._open: list[tuple[str, str, str]] = []  # tag, class and id of the open elements
        self._switches: list[dict[str, str]] = []  # texts of the open switches, by operating system
        self.feed(html)
        self.close()
        while self._open:
            self._close_last()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        if tag == "br":
            self.handle_data("\n")
        elif tag not in WITHOUT_END:
            self._open.append((tag, values.get("class", ""), values.get("id", "")))
            if values.get("class") == SWITCH:
                self._switches.append({})

    def handle_endtag(self, tag: str) -> None:
        if any(tag == opened for opened, _, _ in self._open):
            while self._close_last() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if any(kind in LITERAL for _, kind, _ in self._open):
            self.literal_chars += len(data.strip())
        switches = [depth for depth, (_, kind, _) in enumerate(self._open) if kind == SWITCH]
        if not switches:
            self.text += data
        elif len(self._open) > switches[-1] + 1:  # text between the options of a switch is layout
            _, kind, name = self._open[switches[-1] + 1]
            option = DEFAULT if name.startswith(DEFAULT) else kind
            self._switches[-1][option] = self._switches[-1].get(option, "") + data

    def _close_last(self) -> str:
        tag, kind, _ = self._open.pop()
        if kind == SWITCH:  # keep one wording: all of them together are not a sentence
            options = self._switches.pop()
            self.handle_data(options.get(DEFAULT) or next(iter(options.values()), ""))
        return tag


def read_paragraphs(page: str) -> Iterator[tuple[str, str]]:
    """Yields the `id` and text of the paragraphs of a page that consist of sentences."""
    for paragraph in PARAGRAPH.finditer(page):
        name, attributes, html = paragraph.group("id", "attributes", "html")
        kind = CLASS.search(attributes)
        if kind and NO_LANGUAGE.search(kind[1]):
            continue
        if "<" not in html:
            yield name, unescape(html)
        elif (parsed := ParagraphText(html)).literal_chars * 2 < len(parsed.text.strip()):
            yield name, parsed.text


def pair_pages(source: str, target: str) -> Iterator[Pair]:
    """Yields the sentence pairs of one page in two languages."""
    targets = dict(_number_repeats(read_paragraphs(target)))
    for key, text in _number_repeats(read_paragraphs(source)):
        if key in targets:
            yield from (pair for pair in pair_sentences(text, targets[key]) if is_translation(*pair))


def _number_repeats(paragraphs: Iterable[tuple[str, str]]) -> Iterator[tuple[tuple[str, int], str]]:
    """Adds a count to each `id`. An `id` occurs again if a page includes parts of another page."""
    seen: Counter[str] = Counter()
    for name, text in paragraphs:
        yield (name, seen[name]), text
        seen[name] += 1


def pair_sentences(source: str, target: str) -> list[Pair]:
    """Pairs the sentences of two paragraphs if their numbers are equal, else the paragraphs."""
    sources, targets = split_sentences(source), split_sentences(target)
    if len(sources) == len(targets):
        return list(zip(sources, targets, strict=True))
    return [(" ".join(sources), " ".join(targets))]


def split_sentences(text: str) -> list[str]:
    """Splits a paragraph after full stops, question marks and exclamation marks that end a sentence."""
    text = " ".join(text.split())
    sentences, start = [], 0
    for end in SENTENCE_END.finditer(text):
        piece = text[start : end.end()].strip()
        if not ABBREVIATION.search(piece):
            sentences.append(piece)
            start = end.end()
    return [*sentences, text[start:]] if text[start:] else sentences


def is_translation(source: str, target: str) -> bool:
    """Does the pair look like a sentence and its translation?"""
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


def choose_set(page: str) -> str:
    """Returns the set of a page. It depends on the name of the page alone, so a later version of the text keeps it."""
    number = int.from_bytes(sha256(page.encode()).digest()[:8]) % 1000
    for name, share in HELD_OUT.items():
        if number < share:
            return name
        number -= share
    return "train"


def split(sources: Mapping[str, str], targets: Mapping[str, str]) -> dict[str, list[Pair]]:
    """Returns the pairs of all pages that both languages have, by set.

    Pages include paragraphs of each other. Therefore repeated pairs are dropped, and so are training pairs that share a
    sentence, on either side, with validation or test.
    """
    pages: dict[str, dict[Pair, None]] = {"test": {}, "validation": {}, "train": {}}
    for page in sorted(sources.keys() & targets.keys()):
        pages[choose_set(page)].update(dict.fromkeys(pair_pages(sources[page], targets[page])))
    taken: set[str] = set()
    result: dict[str, list[Pair]] = {}
    for name, pairs in pages.items():
        result[name] = [pair for pair in pairs if taken.isdisjoint(pair)]
        taken.update(sentence for pair in result[name] for sentence in pair)
    return result


def make_pairs(entry: CatalogEntry, pieces: Mapping[str, Path], folder: Path) -> dict[str, int]:
    """Writes SET.LANGUAGE for each set. The pieces are one package of pages for each language, in order."""
    assert entry.languages is not None
    sources, targets = (_read_pages(path) for path in pieces.values())
    sets = split(sources, targets)
    if not sets["train"]:
        raise LockstepError("The packages have no help pages in common.", "Please report this: the layout may be new.")
    for name, pairs in sets.items():
        write_pairs(folder, name, entry.languages, pairs)
    return {name: len(sets[name]) for name in ("train", "validation", "test")}


def _read_pages(package: Path) -> dict[str, str]:
    """Returns the pages of a package by their path below the folder of the language."""
    pages = {}
    for name, content in read_archive(package):
        if path := PAGE.search(name):
            pages[path[1]] = content.read().decode("utf-8", "replace")
    return pages
