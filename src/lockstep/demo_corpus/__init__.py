"""Generates an endless English-German corpus from a grammar: correct and deterministic by seed.

Every English sentence has exactly one German translation, so a model can be scored by comparison. The split of a pair
depends on its German side alone, so a held-out sentence never occurs in training, with any seed.
"""

import zlib
from collections.abc import Iterator
from random import Random
from typing import Literal

from lockstep.demo_corpus.patterns import draw_sentence

Split = Literal["train", "validation", "test"]

VERSION = 1
"""Increase it when the same seed gives other sentences. Existing corpora are then made again."""

_BUCKETS = 50
_HELD_OUT: dict[int, Split] = {0: "test", 1: "validation"}


def choose_split(german: str) -> Split:
    """Returns the split of a sentence, which never changes. Validation and test have two percent each."""
    return _HELD_OUT.get(zlib.crc32(german.encode()) % _BUCKETS, "train")


def generate_pairs(seed: int, split: Split) -> Iterator[tuple[str, str]]:
    """Yields (English, German) sentences of one split without end, the same for the same seed.

    Training sentences may repeat by chance; held-out sentences never do.
    """
    draw = Random(f"{seed} {split}").random
    seen: set[str] = set()
    while True:
        english, german = draw_sentence(draw)
        if choose_split(german) != split:
            continue
        if split != "train":
            if english in seen:
                continue
            seen.add(english)
        yield english, german
