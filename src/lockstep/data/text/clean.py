"""Normalizes training pairs and decides which are dropped, and why.

The checks have a fixed order, and a dropped pair counts under the first reason that applies: its text is checked here,
duplicates and held-out sentences once all text is read, and the number of pieces once it is encoded.

Most checks are array operations on a block of lines. Single sentences are checked only if they have unusual bytes.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from lockstep.data.data_settings import DataSettings
from lockstep.data.text.languages import find_script, uses_spaces
from lockstep.data.text.normalize import Change, normalize_lines
from lockstep.data.text.text_block import BadReason, DecodedBlock

Reason = Literal[
    BadReason,
    "empty",
    "control",
    "long",
    "ratio",
    "identical",
    "script",
    "swapped",
    "language",
    "duplicate",
    "held_out",
    "pieces",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
RATIO_SLACK_WORDS = 3
CHARACTERS_PER_WORD = 2
"""In languages that do not put spaces between words."""
HASHES_AT_ONCE = 1 << 22

WHITESPACE = (
    "\t\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
)
WHITESPACE += "\u2028\u2029\u202f\u205f\u3000"
"""All whitespace characters except the space and the line feed."""
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff\ufff0-\ufffb\ufffd-\uffff\U000f0000-\U0010ffff]")
_UNUSUAL = np.zeros(256, bool)
"""Mask of UTF-8 bytes: text with none of them has no character that `_CONTROL` matches."""
_UNUSUAL[[*range(ord("\n")), *range(ord("\n") + 1, ord(" ")), 0x7F, 0xC2, 0xEE, 0xEF, 0xF3, 0xF4]] = True


class RemovedPair(NamedTuple):
    """A training pair that was dropped. Its line is counted from 0 in its block, or from 1 in its file."""

    line: int
    reason: Reason
    source: str
    target: str


Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int32]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lines:
    """Sentences of one side: a line feed after each, words separated by single spaces."""

    text: str

    @classmethod
    def normalize(cls, text: str) -> "Lines":
        """Replaces every run of whitespace by one space and strips each line, as `" ".join(line.split())` does."""
        for character in WHITESPACE:
            if character in text:
                text = text.replace(character, " ")
        while "  " in text:
            text = text.replace("  ", " ")
        return cls(text.replace(" \n", "\n").replace("\n ", "\n").removeprefix(" "))

    @cached_property
    def sentences(self) -> list[str]:
        return self.text.split("\n")[:-1]

    @cached_property
    def data(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.text.encode(), np.uint8)

    @cached_property
    def ends(self) -> Positions:
        """The position in `data` of the line feed after each sentence, `[sentences]`."""
        return np.flatnonzero(self.data == ord("\n"))

    @property
    def starts(self) -> Positions:
        """The position in `data` of the first byte of each sentence, `[sentences]`."""
        return np.concatenate([[0], self.ends[:-1] + 1])

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def spaces(self) -> Positions:
        """The number of spaces in each sentence, `[sentences]`."""
        return np.diff(np.searchsorted(np.flatnonzero(self.data == ord(" ")), self.ends), prepend=0)

    def count_words(self, language: str) -> Counts:
        """Counts the words of every sentence. In a language without spaces, two characters are a word."""
        if uses_spaces(language):
            return (self.spaces + (self.ends > self.starts)).astype(np.int32)
        characters = np.fromiter(map(len, self.sentences), np.int32, len(self))
        return -(-characters // CHARACTERS_PER_WORD)

    @cached_property
    def hashes(self) -> Hashes:
        """A 64-bit hash of every sentence, `[sentences]`: the sum over its bytes of a random number for the byte times a
        random number for the byte's position. Two sentences collide as rarely as random numbers of 63 bits."""
        if not len(self):
            return np.zeros(0, np.uint64)
        lengths = np.diff(self.ends, prepend=-1)
        positions = np.arange(len(self.data), dtype=np.int32) - np.repeat(self.starts.astype(np.int32), lengths)
        terms = _draw_odd_numbers(2, int(lengths.max()))[positions]
        terms *= _draw_odd_numbers(1, 256)[self.data]
        return np.add.reduceat(terms, self.starts)

    def find_bytes(self, wanted: Mask) -> Positions:
        """Returns the indices of the sentences with at least one wanted byte; `wanted` is a mask of the 256 bytes."""
        positions = np.flatnonzero(wanted[self.data])
        return np.unique(np.searchsorted(self.ends, positions)) if len(positions) else positions

    def select(self, mask: Mask) -> "Lines":
        if mask.all():
            return self
        return Lines("".join(f"{line}\n" for line in compress(self.sentences, mask)))


class Cleaned(NamedTuple):
    """The pairs of a block to train on, and what happened to the others."""

    source: Lines
    target: Lines
    lines: Positions
    """The number of each pair in its block, counted from 0, `[pairs]`."""
    removed: list[RemovedPair]
    changed: dict[Change, int]
    """How many pairs were normalized in which way, whether they were removed or not."""


def clean(settings: DataSettings, block: DecodedBlock) -> Cleaned:
    """Normalizes the pairs of a block and drops the faulty ones."""
    texts, changed = [block.source, block.target], Counter[Change]()
    if settings.cleaning > 1:
        (texts[0], first), (texts[1], second) = map(normalize_lines, texts)
        for change in {**first, **second}:
            changed[change] = len({*first.get(change, ()), *second.get(change, ())})
    source, target = map(Lines.normalize, texts)
    verdict = np.zeros(len(source), np.int8)  # [pairs] 0, or 1 + the index of the reason
    for line, bad in block.bad.items():
        verdict[line] = REASONS.index(bad) + 1
    for reason, faulty in _find_faults(settings, source, target):
        verdict[faulty & (verdict == 0)] = REASONS.index(reason) + 1
    removed = [
        RemovedPair(int(line), REASONS[verdict[line] - 1], source.sentences[line], target.sentences[line])
        for line in np.flatnonzero(verdict)
    ]
    good = verdict == 0
    return Cleaned(source.select(good), target.select(good), np.flatnonzero(good), removed, dict(changed))


def count_reasons(verdict: npt.NDArray[np.int8]) -> Counter[Reason]:
    """Counts how often each reason occurs in an array of 1 + the index of a reason; other values are not counted."""
    counts = np.bincount(verdict[verdict > 0], minlength=len(REASONS) + 1)[1:]
    return +Counter({reason: int(count) for reason, count in zip(REASONS, counts, strict=True)})


def _find_faults(settings: DataSettings, source: Lines, target: Lines) -> Iterator[tuple[Reason, Mask]]:
    """Yields each reason that the text alone shows, with a mask of the pairs it applies to, the strongest reason first."""
    words = [side.count_words(language) for side, language in zip((source, target), settings.languages, strict=True)]
    shorter, longer = np.minimum(*words), np.maximum(*words)
    yield "empty", shorter == 0
    if settings.drop_control:
        yield "control", _find_control(source) | _find_control(target)
    if settings.max_words is not None:
        yield "long", longer > settings.max_words
    if settings.max_ratio is not None:
        yield "ratio", longer > settings.max_ratio * shorter + RATIO_SLACK_WORDS
    if settings.max_identical is not None:
        yield "identical", (source.hashes == target.hashes) & (longer > settings.max_identical)
    if settings.max_foreign < 1.0:
        for side, language in zip((source, target), settings.languages, strict=True):
            yield "script", _find_foreign(side, language, settings.max_foreign)


def _find_control(side: Lines) -> Mask:
    """Marks the sentences with control, private-use or replacement characters."""
    mask = np.zeros(len(side), bool)
    for index in side.find_bytes(_UNUSUAL):
        mask[index] = _CONTROL.search(side.sentences[index]) is not None
    return mask


def _find_foreign(side: Lines, language: str, limit: float) -> Mask:
    """Marks the sentences in which letters of other scripts than the language's have a larger share than `limit`."""
    mask = np.zeros(len(side), bool)
    script = find_script(language)
    if script is not None:
        indices = np.arange(len(side)) if script.suspicious is None else side.find_bytes(script.suspicious)
        for index in indices:
            mask[index] = script.foreign_share(side.sentences[index]) > limit
    return mask


def hash_pairs(source_hashes: Hashes, target_hashes: Hashes) -> Hashes:
    """Returns a 64-bit hash of every pair, `[pairs]`, from the hashes of its sentences.

    Two different pairs with the same hash would lose one of them as a duplicate. In a corpus of 100 million pairs the
    probability of that is about 1 in 1,800.
    """
    first, second = _draw_odd_numbers(3, 2)
    return source_hashes * first + target_hashes * second


def _draw_odd_numbers(stream: int, count: int) -> Hashes:
    """Draws odd random numbers. They are the same on every machine: hashes of different shards must be comparable."""
    return np.random.PCG64(stream).random_raw(count) | np.uint64(1)


def mark_first(hashes: Hashes) -> Mask:
    """Returns True where a value occurs for the first time.

    The range of values is divided, and the parts are sorted one by one: the memory for sorting stays small.
    """
    first = np.ones(len(hashes), bool)
    bits = (len(hashes) // HASHES_AT_ONCE).bit_length()
    for part in range(1 << bits):
        indices = np.flatnonzero(hashes >> np.uint64(64 - bits) == part) if bits else np.arange(len(hashes))
        values = hashes[indices]
        order = np.argsort(values, kind="stable")
        values = values[order]
        first[indices[order[1:][values[1:] == values[:-1]]]] = False
    return first


def check_pieces(
    settings: DataSettings, source_lengths: npt.NDArray[np.integer], target_lengths: npt.NDArray[np.integer]
) -> npt.NDArray[np.int8]:
    """Checks encoded pairs by their pieces, not counting the end-of-sentence token.

    Returns 0 for each pair to train on, or 1 + the index of the reason, `[pairs]`.
    """
    verdict = np.zeros(len(source_lengths), np.int8)
    if settings.max_pieces is not None:
        verdict[np.maximum(source_lengths, target_lengths) > settings.max_pieces] = REASONS.index("pieces") + 1
    verdict[np.minimum(source_lengths, target_lengths) == 0] = REASONS.index("empty") + 1
    return verdict
