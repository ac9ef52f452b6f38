"""Splits text into sentences by rules, and sentences that are too long for a model into parts that fit.

The rules know the sentence marks of many scripts, and the abbreviations of English and German. Where a full stop may be
either, the text is not split. All patterns take linear time: quantifiers of unbounded runs are possessive, and a pattern
that can fail after such a run starts only at its beginning.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

Span = tuple[int, int]

QUOTES = "\"'”’“‘»«›‹„‚＂"
OPENING, CLOSING = "([{（［｛【「『〈《", ")]}）］｝】」』〉》"
STOPS = "。！？｡؟۔।॥።։។៕။"
"""Marks that end a sentence also without whitespace after them."""
LONGEST_BRACKET = 200
"""Sentences inside brackets stay together up to this many characters."""
LONGEST_TOKEN = 24
"""Characters that are read before a full stop. A longer word is no abbreviation."""

_ESCAPED_CLOSING = re.escape(QUOTES + CLOSING)
_END = re.compile(rf"([.!?…{STOPS}]++)([{_ESCAPED_CLOSING}]*+)(?:\[\d{{1,3}}\])*+|\n[^\S\n]*+\n")
_BRACKET = re.compile(
    rf"[{re.escape(OPENING)}][^{re.escape(OPENING + CLOSING)}]{{0,{LONGEST_BRACKET}}}+[{re.escape(CLOSING)}]"
)
_NEXT_WORD = re.compile(rf"[{re.escape(QUOTES + OPENING)}¿¡–—\-*•]{{0,4}}+\s?(\w+(?:['’]\w+)?)([.)])?")
_TOKEN = re.compile(rf"[^\s{re.escape(QUOTES + OPENING)}:;,–—\-]++$")
_BEFORE_TOKEN = re.compile(r"(?:(?<=\s)|^)([^\W\d_]{1,2})\.\s$")
_NUMERAL = re.compile(r"(?:\d{1,3}(?:\.\d{1,3})*+|[^\W\d_]|[IVXLC]{1,6}|[ivx]{1,5})[.)]*+")
_ORDINAL = re.compile(r"\d{1,3}(?:\.\d{1,2})?|[IVXLCDM]{2,7}")
_ABBREVIATED = re.compile(r"[^\W\d_]\.$")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)++[^\W\d_]{1,3}")
_WITHOUT_VOWEL = re.compile(r"[b-df-hj-np-tv-xzB-DF-HJ-NP-TV-XZ][b-df-hj-np-tv-xzß]{1,3}")
_SPACE, _UNTIL_WORD = re.compile(r"\s*+"), re.compile(r"\W*+")

_BREAKS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?<![.!?…])[.!?…]++[{_ESCAPED_CLOSING}]*+\s++",
        r"[;:]\s++|[；：]",
        r",\s++|\s[–—-]\s++|—|[，、،؛]",
        r"\s++",
    )
)
"""Where a sentence that is too long is divided, the best places first: possible sentence ends, then clauses, then words."""


def _read_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TITLES = _read_words("""
    Dr Mr Mrs Ms Prof Rev Hon Capt Cpt Lt Sgt Col Gen Gov Sen Rep Pres Hr Fr Frl Dipl Ing Mme Mlle Messrs Nr Abb Fig
    Figs Eq Eqs Mio Mrd Tsd Bf
""")
INSIDE = _read_words("""
    bzw vgl ca evtl ggf inkl exkl incl excl zzgl bspw sog insb bzgl vs cf viz approx eg ie e.g i.e z.b d.h d.i i.d.r
    u.u s.o s.u v.a z.t z.zt m.e i.a i.allg o.g o.b.d.a g.d.w i.w i.e.s hrsg geb gest verh röm kath evang dt engl
    frz lat
""")
"""Abbreviations after which a sentence goes on, in lower case."""
ANYWHERE = _read_words("""
    etc usw usf uvm st mt ft inc ltd corp co bros jr sr al ave blvd rd str dept univ est no nos vol bd kap art abs
    tab sec ch ed eds aufl anm ziff rn lit par pos std sek max min mind jan feb febr mar mär apr jun jul aug sep
    sept oct okt nov dec dez mon tue wed thu fri sat sun
""")
"""Abbreviations that also end sentences or are words themselves. Before a number they never end a sentence."""
WORDS = _read_words("""
    no max min art ed mar sat sun jun est al mind par rd mon lit pos sec
""")
"""Those of them that are common words: before a capital letter they end a sentence."""
STARTERS = _read_words("""
    The A An This That These Those It Its He She We They You I His Her Our Their My Your There Here In On At By For
    From With But And Or So If When While After Before As Then However Although Because Since What Who Why How Where
    Which Is Are Was Were Do Does Did Can Could Will Would Not No Yes Some Many Most All Each Both Another Such Also
    Now Today Let Please To Once Until During Despite Yet Perhaps Maybe Next Finally Thus Therefore Meanwhile
    Instead Every Nobody Der Die Das Den Dem Des Ein Eine Einen Einem Einer Eines Er Sie Es Wir Ihr Ich Du Man Dies
    Diese Dieser Dieses Diesen Diesem Jede Jeder Jedes Alle Viele Im Am Auf Aus Bei Beim Mit Nach Von Vom Vor Zu Zum
    Zur Für Über Unter Durch Gegen Ohne Um Und Oder Aber Denn Doch Sondern Wenn Als Ob Weil Da Dann Danach Deshalb
    Daher Darum Dabei Damit Dafür Dort Hier Jetzt Heute Gestern Nun Auch Nur Noch Nicht Kein Keine Wer Wie Wo Warum
    Wann Ist Sind War Waren Hat Haben Hatte Kann Seit Während Trotz Wegen Obwohl Sein Seine Ihre Mein Unser Außerdem
    Später Zuerst Zunächst Schließlich Bis Nachdem Niemand Dennoch Allerdings Jedoch
""")
"""Words that start a sentence when they are capitalized after an abbreviation."""


def find_sentences(text: str, language: str = "") -> Iterator[Span]:
    """Yields the start and end of every sentence, in order. Only whitespace lies outside of them.

    English has no ordinals with a full stop: `language` decides about "He was 42. John left" and "am 3. Mai".
    """
    brackets = (match.span() for match in _BRACKET.finditer(text))
    bracket = next(brackets, None)
    start = _skip(_SPACE, text, 0)
    first_word = _skip(_UNTIL_WORD, text, start)
    for mark in _END.finditer(text):
        end = mark.end()
        while bracket is not None and bracket[1] <= end:
            bracket = next(brackets, None)
        is_inside = bracket is not None and bracket[0] < end
        if first_word >= mark.start() or is_inside or not _ends_sentence(text, start, mark, language):
            continue
        if mark[1] is None:
            end = start + len(text[start : mark.start()].rstrip())
        yield start, end
        start = _skip(_SPACE, text, end)
        first_word = _skip(_UNTIL_WORD, text, start)
    if start < len(text):
        yield start, start + len(text[start:].rstrip())


def _skip(pattern: re.Pattern[str], text: str, position: int) -> int:
    """Returns the position after the characters that the pattern matches."""
    match = pattern.match(text, position)
    return match.end() if match else position


def _ends_sentence(text: str, start: int, mark: re.Match[str], language: str) -> bool:
    """Is the mark the end of the sentence that began at `start`?"""
    end, signs, closing = mark.end(), mark[1], mark[2]
    if signs is None or end == len(text):  # a blank line, or the end of the text
        return True
    if any(sign in STOPS for sign in signs):
        return not (closing and text[end] in "とっての、，,")
    if not text[end].isspace():
        return False
    after = _skip(_SPACE, text, end)
    if text[after : after + 1] in tuple(".!?…,;:)"):
        return False
    following = _NEXT_WORD.match(text, after)
    word = following[1] if following else ""
    if word[:1].islower() and not word[1:2].isupper():  # a name such as iPhone starts a sentence as well
        return False
    if signs != "." or not word:
        return True
    is_starter = word in STARTERS and following is not None and following[2] is None
    return not _is_abbreviation(text, start, mark.start(), word, is_starter, language)


def _is_abbreviation(text: str, start: int, dot: int, word: str, is_starter: bool, language: str) -> bool:
    """Does the full stop at `dot`, before `word`, belong to an abbreviation, an ordinal or the number of an item?"""
    first = max(start, dot - LONGEST_TOKEN)
    match = _TOKEN.search(text[first:dot])
    if match is None:
        return False
    token, begin = match[0], first + match.start()
    before = (
        text[start:begin].rstrip() if begin - start <= LONGEST_TOKEN else text[begin - LONGEST_TOKEN : begin].rstrip()
    )
    if _NUMERAL.fullmatch(token) and (not before.strip(QUOTES + OPENING + "-–—*•") or before[-1] in ":;"):
        return True
    lower = _join_spaced(text, start, begin, token).lower()
    if token in TITLES or lower in INSIDE:
        return True
    if lower in ANYWHERE:
        return word[0].isdigit() or not (is_starter or lower in WORDS)
    has_ordinals = not language.lower().startswith("en")
    may_continue = (
        (len(token) == 1 and token.isalpha() and token.lower() != token.upper())
        or _DOTTED.fullmatch(token) is not None
        or _WITHOUT_VOWEL.fullmatch(token) is not None
        or (has_ordinals and _ORDINAL.fullmatch(token) is not None and not _ABBREVIATED.search(before))
    )
    return may_continue and not is_starter


def _join_spaced(text: str, start: int, begin: int, token: str) -> str:
    """Joins the parts of an abbreviation with spaces, such as "i. d. R"."""
    for _ in range(3):
        first = max(start, begin - 5)
        match = _BEFORE_TOKEN.search(text[first:begin])
        if match is None:
            break
        token, begin = f"{match[1]}.{token}", first + match.start(1)
    return token


Count = Callable[[list[str]], list[int]]
"""Returns the size of each text, in the pieces that a model counts."""


@dataclass
class Parts:
    """A text in parts that fit. `cut_sentences` is the number of sentences that were divided at clauses or words."""

    texts: list[str] = field(default_factory=list)
    cut_sentences: int = 0
    untranslatable: set[int] = field(default_factory=set)
    """Indices of words that do not fit, such as encoded data."""


def split_to_fit(text: str, limit: int, count: Count, language: str = "", has_spaces: bool = True) -> Parts:
    """Splits text into its sentences, and divides those that are larger than `limit`. In a language without spaces, they
    may be divided between any characters."""
    parts = Parts()
    sentences = [text[begin:end] for begin, end in find_sentences(text, language)]
    for sentence, size in zip(sentences, count(sentences), strict=True):
        if size <= limit:
            parts.texts.append(sentence)
        else:
            parts.cut_sentences += 1
            _divide(sentence, size, limit, count, 0, has_spaces, parts)
    return parts


def _divide(text: str, size: int, limit: int, count: Count, level: int, has_spaces: bool, parts: Parts) -> None:
    """Divides text that is too large at the best places, into as few parts of similar size as possible."""
    if level == len(_BREAKS):
        if has_spaces:
            parts.untranslatable.add(len(parts.texts))
        parts.texts.extend([text.strip()] if has_spaces else _cut_word(text.strip(), size, limit, count))
        return
    places = [0, *(match.end() for match in _BREAKS[level].finditer(text)), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(places) if begin < end]
    if len(pieces) == 1:
        _divide(text, size, limit, count, level + 1, has_spaces, parts)
        return
    wanted = -(-size // -(-size // limit))
    group, used = "", 0
    for piece, own in zip(pieces, count(pieces), strict=True):
        if group and (used + own > limit or used >= wanted):
            parts.texts.append(group.strip())
            group, used = "", 0
        if own > limit:
            _divide(piece, own, limit, count, level + 1, has_spaces, parts)
        else:
            group, used = group + piece, used + own
    if group.strip():
        parts.texts.append(group.strip())


def _cut_word(word: str, size: int, limit: int, count: Count) -> list[str]:
    """Cuts text without whitespace into parts that fit. Combining marks stay with their letter where possible."""
    length = max(1, min(len(word) // 2, len(word) * limit * 3 // (4 * size)))
    cuts = [0]
    while cuts[-1] + length < len(word):
        cut = cuts[-1] + length
        while cut > cuts[-1] + 1 and length - (cut - cuts[-1]) < 8 and _joins(word, cut):
            cut -= 1
        cuts.append(cut)
    pieces = [word[begin:end] for begin, end in pairwise([*cuts, len(word)])]
    sizes = count(pieces)
    return [
        part
        for piece, own in zip(pieces, sizes, strict=True)
        for part in ([piece] if own <= limit or len(piece) == 1 else _cut_word(piece, own, limit, count))
    ]


def _joins(word: str, cut: int) -> bool:
    """Would a cut here tear a letter from its marks, or an emoji apart?"""
    return unicodedata.category(word[cut]).startswith("M") or "\u200d" in word[cut - 1 : cut + 1]
