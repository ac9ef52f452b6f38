"""Normalizes training pairs and decides which are dropped, and why.

The checks have a fixed order, and a dropped pair counts under the first reason that applies: its text is checked here,
duplicates and held-out sentences once all text is read, and the number of pieces once it is encoded.

Most checks are array operations on a block of lines. Single sentences are checked only if they have unusual bytes.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from lockstep.data.data_settings import DataSettings
from lockstep.data.text.check_languages import check_languages
from lockstep.data.text.languages import find_script
from lockstep.data.text.lines import Counts, Lines, Mask, Positions
from lockstep.data.text.normalize import Change, normalize_lines
from lockstep.data.text.text_block import BadReason, DecodedBlock

Reason = Literal[
    BadReason,
    "empty",
    "control",
    "long",
    "ratio",
    "identical",
    "swapped",
    "script",
    "language",
    "duplicate",
    "held_out",
    "pieces",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
RATIO_SLACK_WORDS = 3
SHORT_WORDS, OWN_LETTERS = 5, 3
"""A side of at most SHORT_WORDS words is kept if at least OWN_LETTERS of its letters are in the script of its language."""
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


class Cleaned(NamedTuple):
    """The pairs of a block to train on, and what happened to the others."""

    source: Lines
    target: Lines
    lines: Positions
    """The number of each pair in its block, counted from 0, `[pairs]`."""
    removed: list[RemovedPair]
    changed: dict[Change, int]
    """How many pairs were normalized in which way, whether they were removed or not."""
    doubts: npt.NDArray[np.int8]
    """What the language of the pairs suggests, `[pairs]`: 0, or 1 + the index of a reason. It is decided when all text is
    read, because it counts only if most sentences look like a real language."""
    checked: int
    """Sentences whose language was checked."""
    natural: int
    """Those of them that look like a real language."""


def clean(settings: DataSettings, block: DecodedBlock) -> Cleaned:
    """Normalizes the pairs of a block and drops the faulty ones."""
    texts, changed = [block.source, block.target], Counter[Change]()
    if settings.cleaning > 1:
        (texts[0], first), (texts[1], second) = map(normalize_lines, texts)
        for change in {**first, **second}:
            changed[change] = len({*first.get(change, ()), *second.get(change, ())})
    source, target = map(Lines.normalize, texts)
    check = None
    if settings.check_languages and settings.cleaning > 1 and settings.grammar is None:
        check = check_languages(settings.languages, (source, target), _count_words(settings, source, target))
    verdict = np.zeros(len(source), np.int8)  # [pairs] 0, or 1 + the index of the reason
    for line, bad in block.bad.items():
        verdict[line] = REASONS.index(bad) + 1
    for reason, faulty in _find_faults(settings, source, target):
        verdict[faulty & (verdict == 0)] = REASONS.index(reason) + 1
    doubts = np.zeros(len(source), np.int8)
    if check is not None:
        swapped = REASONS.index("swapped") + 1
        doubts[check.wrong] = REASONS.index("language") + 1
        doubts[check.swapped] = swapped
        verdict[check.swapped & (verdict == REASONS.index("script") + 1)] = swapped
    removed = [
        RemovedPair(int(line), REASONS[verdict[line] - 1], source.sentences[line], target.sentences[line])
        for line in np.flatnonzero(verdict)
    ]
    good = verdict == 0
    return Cleaned(
        source.select(good),
        target.select(good),
        np.flatnonzero(good),
        removed,
        dict(changed),
        doubts[good],
        check.checked if check else 0,
        check.natural if check else 0,
    )


def count_reasons(verdict: npt.NDArray[np.int8]) -> Counter[Reason]:
    """Counts how often each reason occurs in an array of 1 + the index of a reason; other values are not counted."""
    counts = np.bincount(verdict[verdict > 0], minlength=len(REASONS) + 1)[1:]
    return +Counter({reason: int(count) for reason, count in zip(REASONS, counts, strict=True)})


def _find_faults(settings: DataSettings, source: Lines, target: Lines) -> Iterator[tuple[Reason, Mask]]:
    """Yields each reason that the text alone shows, with a mask of the pairs it applies to, the strongest reason first."""
    words = _count_words(settings, source, target)
    shorter, longer = np.minimum(*words), np.maximum(*words)
    yield "empty", shorter == 0
    if settings.drop_control:
        yield "control", _find_control(source) | _find_control(target)
    equal = source.hashes == target.hashes
    identical = equal & (longer > (math.inf if settings.max_identical is None else settings.max_identical))
    foreign = [
        _find_foreign(settings, side, language, count)
        for side, language, count in zip((source, target), settings.languages, words, strict=True)
    ]
    if settings.cleaning > 1:  # before the lengths, because words in the wrong script are counted wrongly
        yield "identical", identical
        yield "script", (foreign[0] | foreign[1]) & ~equal
    if settings.max_words is not None:
        yield "long", longer > settings.max_words
    if settings.max_ratio is not None:
        yield "ratio", longer > settings.max_ratio * shorter + RATIO_SLACK_WORDS
    if settings.cleaning == 1:
        yield "identical", identical
        yield "script", foreign[0] | foreign[1]


def _count_words(settings: DataSettings, source: Lines, target: Lines) -> list[Counts]:
    return [
        side.count_words(language, all_by_characters=settings.cleaning == 1)
        for side, language in zip((source, target), settings.languages, strict=True)
    ]


def _find_control(side: Lines) -> Mask:
    """Marks the sentences with control, private-use or replacement characters."""
    mask = np.zeros(len(side), bool)
    for index in side.find_bytes(_UNUSUAL):
        mask[index] = _CONTROL.search(side.sentences[index]) is not None
    return mask


def _find_foreign(settings: DataSettings, side: Lines, language: str, words: Counts) -> Mask:
    """Marks the sentences in which letters of other scripts than the language's have a larger share than
    `data.max_foreign`. A short one with a few letters of its own script may otherwise consist of names."""
    mask = np.zeros(len(side), bool)
    script = find_script(language, settings.cleaning > 1)
    if script is not None and settings.max_foreign < 1.0:
        indices = np.arange(len(side)) if script.suspicious is None else side.find_bytes(script.suspicious)
        for index in indices:
            sentence = side.sentences[index]
            mask[index] = script.foreign_share(sentence) > settings.max_foreign and not (
                script.allows_names and words[index] <= SHORT_WORDS and script.count_own(sentence) >= OWN_LETTERS
            )
    return mask


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
