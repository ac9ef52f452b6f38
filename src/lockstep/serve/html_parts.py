"""Finds the sentences in HTML. Everything else is kept byte for byte: tags, attributes, comments, scripts, code."""

import re
from collections.abc import Iterator
from html import escape, unescape
from html.parser import HTMLParser
from itertools import accumulate, groupby

from lockstep.serve.sentence_parts import TextParts, has_letters

UNTRANSLATED = {"script", "style", "pre", "code", "kbd", "samp", "var", "math"}
"""Elements whose text is not language."""
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
"""Elements without content and end tag."""
_SPACE = re.compile(r"(?:\s|&nbsp;|&#160;|&#[xX][aA]0;)++")
_OPEN_MARKUP = re.compile(r"<[A-Za-z/!?]")


def split_html(html: str, language: str) -> TextParts:
    """Returns the sentences of all text nodes, without entities, and the gaps between them, which are HTML. Translated
    sentences must be escaped with `escape_text`."""
    parts = TextParts()
    end = 0
    for begin, next_end in _Scanner(html).find_texts():
        parts.add_gap(html[end:begin])
        _add_node(parts, html[begin:next_end], language)
        end = next_end
    parts.add_gap(html[end:])
    return parts


def escape_text(text: str) -> str:
    return escape(text, quote=False)


def _add_node(parts: TextParts, node: str, language: str) -> None:
    """Adds a text node. Whitespace at both ends stays as it is written."""
    if not has_letters(unescape(node)):
        parts.add_gap(node)
        return
    spaces = [match.span() for match in _SPACE.finditer(node)]
    begin = spaces[0][1] if spaces and spaces[0][0] == 0 else 0
    end = spaces[-1][0] if spaces and spaces[-1][1] == len(node) else len(node)
    parts.add_gap(node[:begin])
    parts.add_text(unescape(node[begin:end]), language, escape_text)
    parts.add_gap(node[end:])


class _Scanner(HTMLParser):
    """Records at which positions of the HTML text and markup begin."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=False)
        self._html = html
        self._lines = [0, *accumulate(len(line) + 1 for line in html.split("\n"))]
        self._tokens: list[tuple[int, bool]] = []  # position, is it text to translate?
        self._skipped: list[str] = []  # the open elements of one name that are not translated

    def find_texts(self) -> Iterator[tuple[int, int]]:
        """Yields the start and end of every text node that is to be translated. Markup that does not end is kept with all
        that follows it. (`close` would look for tags in it, which takes quadratic time.)"""
        self.feed(self._html)
        rest = len(self._html) - len(self.rawdata)
        self._add(rest)
        tokens = [*self._tokens, (len(self._html), False)]
        starts = [(next(group)[0], is_text) for is_text, group in groupby(tokens, key=lambda token: token[1])]
        for (begin, is_text), (end, _) in zip(starts, starts[1:], strict=False):
            if is_text:
                yield begin, end

    def _mark(self, is_text: bool) -> None:
        """Notes the beginning of the token that the parser has found."""
        line, column = self.getpos()
        self._add(self._lines[line - 1] + column, is_text)

    def _add(self, position: int, is_text: bool = True) -> None:
        is_open = _OPEN_MARKUP.match(self._html, position)
        self._tokens.append((position, is_text and not self._skipped and is_open is None))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._mark(False)
        is_first = not self._skipped and tag not in VOID and (tag in UNTRANSLATED or ("translate", "no") in attrs)
        if is_first or self._skipped[-1:] == [tag]:
            self._skipped.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._mark(False)

    def handle_endtag(self, tag: str) -> None:
        self._mark(False)
        if self._skipped[-1:] == [tag]:
            self._skipped.pop()

    def handle_data(self, data: str) -> None:
        self._mark(True)

    def handle_entityref(self, name: str) -> None:
        self._mark(True)

    def handle_charref(self, name: str) -> None:
        self._mark(True)

    def handle_comment(self, data: str) -> None:
        self._mark(False)

    def handle_decl(self, decl: str) -> None:
        self._mark(False)

    def handle_pi(self, data: str) -> None:
        self._mark(False)

    def unknown_decl(self, data: str) -> None:
        self._mark(False)

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """`<![...` is a comment in HTML. The method of the base class raises for unknown sections."""
        return self.parse_bogus_comment(i, report)
