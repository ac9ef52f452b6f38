"""Which training pairs are left out, and why.

Only training text is filtered: evaluation text is scored line by line as it stands. A pair is judged in a fixed order and
counted under the first reason that applies: by its text here, as a duplicate once all text was read, by its pieces once
it is encoded.

Text is judged many lines at a time, in operations on whole blocks and arrays; single sentences are only looked at when
something in them is out of the ordinary.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lockstep.data.data_settings import DataSettings
from lockstep.data.text.languages import script_of, writes_blanks

Reason = Literal["empty", "control", "long", "ratio", "identical", "script", "duplicate", "pieces"]
REASONS: tuple[Reason, ...] = ("empty", "control", "long", "ratio", "identical", "script", "duplicate", "pieces")
RATIO_SLACK_WORDS = 3
CHARACTERS_PER_WORD = 2
"""In languages without blanks."""
HASHES_AT_ONCE = 1 << 22

BLANKS = "\t\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
BLANKS += "\u2028\u2029\u202f\u205f\u3000"
"""Everything that separates words, but for the space and the line feed."""
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff\ufff0-\ufffb\ufffd-\uffff\U000f0000-\U0010ffff]")
_UNUSUAL = np.zeros(256, bool)
"""The UTF-8 bytes without which text has none of these characters."""
_UNUSUAL[[*range(ord("\n")), *range(ord("\n") + 1, ord(" ")), 0x7F, 0xC2, 0xEE, 0xEF, 0xF3, 0xF4]] = True

Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Lines:
    """Sentences of one side: a line feed after each, words separated by single blanks."""

    text: str

    @classmethod
    def of(cls, text: str) -> "Lines":
        """Does to every line what `" ".join(line.split())` would do."""
        for blank in BLANKS:
            if blank in text:
                text = text.replace(blank, " ")
        while "  " in text:
            text = text.replace("  ", " ")
        return cls(text.replace(" \n", "\n").replace("\n ", "\n").removeprefix(" "))

    @cached_property
    def list(self) -> list[str]:
        return self.text.split("\n")[:-1]

    @cached_property
    def data(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.text.encode(), np.uint8)

    @cached_property
    def ends(self) -> npt.NDArray[np.int64]:
        """Where in `data` the line feed after each sentence is."""
        return np.flatnonzero(self.data == ord("\n"))

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        return np.concatenate([[0], self.ends[:-1] + 1])

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def blanks(self) -> npt.NDArray[np.int64]:
        """How many blanks each sentence has."""
        return np.diff(np.searchsorted(np.flatnonzero(self.data == ord(" ")), self.ends), prepend=0)

    def words(self, language: str) -> Counts:
        """Words of every sentence: separated by blanks, or two characters each in a language without blanks."""
        if writes_blanks(language):
            return (self.blanks + (self.ends > self.starts)).astype(np.int32)
        characters = np.fromiter(map(len, self.list), np.int32, len(self))
        return -(-characters // CHARACTERS_PER_WORD)

    @cached_property
    def hashes(self) -> Hashes:
        """A 64-bit name of every sentence: a sum of random numbers, each the product of one for the byte and one for its
        place. Two sentences share one by chance as rarely as numbers of 63 bits do."""
        if not len(self):
            return np.zeros(0, np.uint64)
        lengths = np.diff(self.ends, prepend=-1)
        places = np.arange(len(self.data), dtype=np.int32) - np.repeat(self.starts.astype(np.int32), lengths)
        terms = _random(2, int(lengths.max()))[places]
        terms *= _random(1, 256)[self.data]
        return np.add.reduceat(terms, self.starts)

    def having(self, marked: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """The places of the sentences with at least one of the bytes that are marked in a table of 256."""
        found = np.flatnonzero(marked[self.data])
        return np.unique(np.searchsorted(self.ends, found)) if len(found) else found

    def only(self, chosen: Mask) -> "Lines":
        if chosen.all():
            return self
        return Lines("".join(f"{line}\n" for line in compress(self.list, chosen)))


def clean(settings: DataSettings, source: str, target: str) -> tuple[Lines, Lines, Counter[Reason]]:
    """Both sides of the pairs to learn from, and how many pairs were left out for which reason."""
    sides = Lines.of(source), Lines.of(target)
    verdict = np.zeros(len(sides[0]), np.int8)
    for reason, found in _faults(settings, *sides):
        verdict[found & (verdict == 0)] = REASONS.index(reason) + 1
    removed: Counter[Reason] = Counter()
    for reason, count in zip(REASONS, np.bincount(verdict, minlength=len(REASONS) + 1)[1:], strict=True):
        removed[reason] = int(count)
    kept = verdict == 0
    return sides[0].only(kept), sides[1].only(kept), +removed


def _faults(settings: DataSettings, source: Lines, target: Lines) -> Iterator[tuple[Reason, Mask]]:
    """Every reason that can be seen in the text, with the pairs it applies to, the strongest reason first."""
    words = [side.words(language) for side, language in zip((source, target), settings.languages, strict=True)]
    shorter, longer = np.minimum(*words), np.maximum(*words)
    yield "empty", shorter == 0
    if settings.drop_control:
        yield "control", _control(source) | _control(target)
    if settings.max_words is not None:
        yield "long", longer > settings.max_words
    if settings.max_ratio is not None:
        yield "ratio", longer > settings.max_ratio * shorter + RATIO_SLACK_WORDS
    if settings.max_identical is not None:
        yield "identical", (source.hashes == target.hashes) & (longer > settings.max_identical)
    if settings.max_foreign < 1.0:
        for side, language in zip((source, target), settings.languages, strict=True):
            yield "script", _foreign(side, language, settings.max_foreign)


def _control(side: Lines) -> Mask:
    found = np.zeros(len(side), bool)
    for place in side.having(_UNUSUAL):
        found[place] = _CONTROL.search(side.list[place]) is not None
    return found


def _foreign(side: Lines, language: str, limit: float) -> Mask:
    """Where the letters of other scripts than the language's have a larger share than `limit`."""
    found = np.zeros(len(side), bool)
    script = script_of(language)
    if script is not None:
        every = range(len(side))
        for place in every if script.suspicious is None else side.having(script.suspicious):
            found[place] = script.foreign(side.list[place]) > limit
    return found


def pair_hashes(source: Lines, target: Lines) -> Hashes:
    """A 64-bit name of every pair. That two different pairs share one by chance, and one of them is lost as a duplicate,
    happens in one of about 1,800 corpora of a hundred million pairs."""
    first, second = _random(3, 2)
    return source.hashes * first + target.hashes * second


def _random(stream: int, count: int) -> Hashes:
    """Odd random numbers, the same everywhere and always."""
    return np.random.PCG64(stream).random_raw(count) | np.uint64(1)


def first_ones(hashes: Hashes) -> Mask:
    """True where a value occurs for the first time. Looks at one range of values after the other, so that sorting needs
    little memory however many there are."""
    first = np.ones(len(hashes), bool)
    bits = (len(hashes) // HASHES_AT_ONCE).bit_length()
    for part in range(1 << bits):
        places = np.flatnonzero(hashes >> np.uint64(64 - bits) == part) if bits else np.arange(len(hashes))
        values = hashes[places]
        order = np.argsort(values, kind="stable")
        values = values[order]
        first[places[order[1:][values[1:] == values[:-1]]]] = False
    return first


def piece_fault(
    settings: DataSettings, source_lengths: npt.NDArray[Any], target_lengths: npt.NDArray[Any]
) -> tuple[Mask, Counter[Reason]]:
    """Which encoded pairs to learn from, judged by their pieces (without end mark); and why not the others."""
    empty = np.minimum(source_lengths, target_lengths) == 0
    long = np.zeros_like(empty)
    if settings.max_pieces is not None:
        long = ~empty & (np.maximum(source_lengths, target_lengths) > settings.max_pieces)
    counts: Counter[Reason] = Counter({"empty": int(empty.sum()), "pieces": int(long.sum())})
    return ~(empty | long), +counts
