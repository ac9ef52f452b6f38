"""An endless English-German corpus from a grammar: correct, deterministic by seed, and with a clean held-out part.

Every English sentence has exactly one German translation, so a model can be scored by comparison, and the split of
a pair follows from its German side alone: a sentence that is held out can never appear in training, whatever the seed.
"""

import zlib
from collections.abc import Iterator
from random import Random
from typing import Literal

from lockstep.demo_corpus.patterns import draw_sentence

Split = Literal["train", "validation", "test"]

VERSION = 1
"""Goes up when the same seed would make other sentences: corpora made before are then made anew."""

_BUCKETS = 50
_HELD_OUT: dict[int, Split] = {0: "test", 1: "validation"}


def split_of(german: str) -> Split:
    """Where a sentence belongs, forever: two percent each are held out for validation and test."""
    return _HELD_OUT.get(zlib.crc32(german.encode()) % _BUCKETS, "train")


def pairs(seed: int, split: Split) -> Iterator[tuple[str, str]]:
    """An endless stream of (English, German) sentences of one split, the same for the same seed.

    The training stream may repeat a sentence by chance; the held-out streams never do.
    """
    draw = Random(f"{seed} {split}").random
    seen: set[str] = set()
    while True:
        english, german = draw_sentence(draw)
        if split_of(german) != split:
            continue
        if split != "train":
            if english in seen:
                continue
            seen.add(english)
        yield english, german
