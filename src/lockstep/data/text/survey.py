"""Counts what is in parallel text before it is prepared: pairs, words, duplicates, lines that cannot be used."""

import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from lockstep.data.data_settings import DataSettings
from lockstep.data.text import parallel_text
from lockstep.data.text.clean import Cleaned, clean
from lockstep.data.text.lines import Hashes, Lines, hash_pairs, mark_first
from lockstep.data.text.text_block import BadReason

BLOCK_LINES = 1 << 14
SAMPLE_PAIRS = 30_000
COVERAGE = 0.9995
"""The share of the text that the common characters make up."""


@dataclass
class Survey:
    """What was counted in the text of a set."""

    pairs: int = 0
    is_complete: bool = True
    """False if there was more text than the limits allow: the counts are those of its beginning."""
    words: tuple[int, int] = (0, 0)
    """Source and target words."""
    longest: int = 0
    """Words of the longest sentence."""
    empty: int = 0
    """Pairs with an empty side."""
    duplicates: int = 0
    """Pairs that occurred before."""
    bad: Counter[BadReason] = field(default_factory=Counter)
    """Lines that cannot be decoded, are no pair or are far too long."""
    usable: int = 0
    """Pairs that cleaning keeps, of those in the sample."""
    sampled: int = 0
    """Pairs in the sample."""
    doubtful: int = 0
    """Usable pairs that are clearly in other languages, if most sentences look like a real language."""
    sides: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    """The cleaned source sentences and target sentences of the sample."""
    characters: int = 0
    """Different characters in the cleaned text of the sample."""
    common_characters: int = 0
    """Of them, those that make up nearly all of the text; see `COVERAGE`."""
    sample: list[str] = field(default_factory=list)
    """Different cleaned sentences of both languages, from the beginning of the text. SentencePiece needs very long for text
    that repeats itself."""

    @property
    def mean_words(self) -> float:
        """Words of a target sentence, on average."""
        return self.words[1] / max(1, self.pairs)

    @property
    def clean_pairs(self) -> int:
        """About how many pairs cleaning keeps."""
        return max(0, round(self.pairs * self.usable / max(1, self.sampled)) - self.duplicates)


def survey(settings: DataSettings, name: str, most_pairs: int, seconds: float | None = None) -> Survey:
    """Counts the text of a set (train, validation or test). It stops after this many pairs or seconds."""
    begin, counted = time.monotonic(), Survey()
    hashes: list[Hashes] = []
    settings = settings.model_copy(update={"bad_lines": "skip"})
    for block in parallel_text.read_blocks(settings, name, BLOCK_LINES):
        decoded = block.decode(settings.line_limit, skip_bad=True)
        counted.bad.update(decoded.bad.values())
        sides = Lines.normalize(decoded.source), Lines.normalize(decoded.target)
        words = [side.count_words(code) for side, code in zip(sides, settings.languages, strict=True)]
        counted.pairs += len(sides[0])
        counted.words = counted.words[0] + int(words[0].sum()), counted.words[1] + int(words[1].sum())
        counted.longest = max(counted.longest, *(int(count.max(initial=0)) for count in words))
        readable = np.ones(len(sides[0]), bool)
        readable[list(decoded.bad)] = False
        filled = np.minimum(*words) > 0
        counted.empty += int((readable & ~filled).sum())
        hashes.append(hash_pairs(sides[0].hashes, sides[1].hashes)[readable & filled])
        if counted.usable < SAMPLE_PAIRS:
            _add_sample(counted, clean(settings, decoded), len(sides[0]))
        if counted.pairs >= most_pairs or (seconds is not None and time.monotonic() - begin > seconds):
            counted.is_complete = False
            break
    pairs = np.concatenate(hashes) if hashes else np.zeros(0, np.uint64)
    counted.duplicates = int((~mark_first(pairs)).sum())
    counted.sample = list(dict.fromkeys(counted.sides[0] + counted.sides[1]))
    frequencies = sorted(Counter("".join(counted.sample)).values(), reverse=True)
    counted.characters = len(frequencies)
    counted.common_characters = int((np.cumsum([0, *frequencies[:-1]]) < COVERAGE * sum(frequencies)).sum())
    return counted


def _add_sample(counted: Survey, cleaned: Cleaned, pairs: int) -> None:
    counted.sampled += pairs
    counted.usable += len(cleaned.source)
    counted.doubtful += int((cleaned.doubts > 0).sum()) if 2 * cleaned.natural > cleaned.checked else 0
    for sentences, side in zip(counted.sides, (cleaned.source, cleaned.target), strict=True):
        sentences += side.sentences
