"""The global batch order: which sentences make up each step. It knows lengths and settings, never the text.

The order is a pure function of (lengths, batch settings, seed). Workers, strategies and interruptions do not enter it,
so a position (epoch, cursor) is all the state that data has.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lockstep.data.data_settings import BatchSettings
from lockstep.errors import LockstepError


@dataclass(frozen=True)
class Position:
    """The next batch to consume: batch number `cursor` of pass `epoch` over the corpus."""

    epoch: int = 0
    cursor: int = 0


@dataclass(frozen=True)
class GlobalBatch:
    """All sentences of one step over all workers."""

    indices: np.ndarray  # [sentences] places in the training set
    target_words: int
    after: Position  # where the data stands once this batch is consumed

    @property
    def digest(self) -> str:
        """A short name of exactly these sentences in this order, for the journal."""
        return f"{zlib.crc32(np.ascontiguousarray(self.indices, dtype=np.int64).tobytes()):08x}"


class Order:
    """The sequence of global batches."""

    def __init__(
        self, source_lengths: np.ndarray, target_lengths: np.ndarray, settings: BatchSettings, seed: int
    ) -> None:
        if settings.per != "global":
            raise ValueError("a per-worker budget must be turned into a global one first")
        if settings.words is None and settings.sentences is None:
            remedy = "Set batch.words or batch.sentences."
            raise LockstepError("batch.images counts images, and here are none.", remedy, code=2)
        self.source_lengths, self.target_lengths = source_lengths, target_lengths
        self.settings, self.seed = settings, seed

    def check(self) -> None:
        """A budget that some sentence does not fit into is a mistake, though a batch always gets a sentence."""
        longest, words = int(self.target_lengths.max()), self.settings.words
        if words is not None and words < longest:
            raise LockstepError(
                f"batch.words {words} is smaller than the longest training sentence ({longest} target words).",
                f"Set batch.words to at least {longest}, or lower data.max_pieces.",
                code=2,
            )

    def epoch(self, number: int) -> list[np.ndarray]:
        """The batches of one pass: every sentence once."""
        draw = np.random.Generator(np.random.Philox(key=np.array([self.seed % 2**64, number], dtype=np.uint64)))
        order = np.arange(len(self.target_lengths), dtype=np.int32 if len(self.target_lengths) < 2**31 else np.int64)
        if self.settings.shuffle:
            draw.shuffle(order)
        if self.settings.bucket:  # stable sorts: sentences of equal lengths stay shuffled
            order = _sorted(_sorted(order, self.source_lengths), self.target_lengths)
        if self.settings.sentences is not None:
            ends = np.arange(self.settings.sentences, len(order) + self.settings.sentences, self.settings.sentences)
        else:
            assert self.settings.words is not None
            ends = _cut(self.target_lengths[order], self.settings.words)
        batches = np.split(order, ends[:-1])
        if self.settings.bucket and self.settings.shuffle:
            batches = [batches[i] for i in draw.permutation(len(batches))]
        return batches

    def batches(self, position: Position) -> Iterator[GlobalBatch]:
        """Endless, from `position` on."""
        epoch, cursor = position.epoch, position.cursor
        while True:
            plan = self.epoch(epoch)
            for number in range(cursor, len(plan)):
                last = number + 1 == len(plan)
                after = Position(epoch + 1, 0) if last else Position(epoch, number + 1)
                indices = plan[number]
                yield GlobalBatch(indices, self.target_words(indices), after)
            epoch, cursor = epoch + 1, 0

    def share(self, batch: GlobalBatch, worker: int, workers: int) -> np.ndarray:
        """The sentences of one worker. With `balance` they are dealt longest first, back and forth, so that every
        worker gets as many words as the others, because the slowest worker decides the pace of all."""
        if not self.settings.balance:
            return np.array_split(batch.indices, workers)[worker]
        cost = self.source_lengths[batch.indices] + self.target_lengths[batch.indices]
        ranked = batch.indices[np.argsort(-cost, kind="stable")]
        turn = np.arange(len(ranked)) % (2 * workers)
        return ranked[np.minimum(turn, 2 * workers - 1 - turn) == worker]

    def target_words(self, share: np.ndarray) -> int:
        return int(self.target_lengths[share].sum())

    def micro_batches(self, share: np.ndarray) -> list[np.ndarray]:
        """A share cut into pieces of at most `micro_words` target words."""
        if self.settings.micro_words is None or len(share) < 2:
            return [share]
        return np.split(share, _cut(self.target_lengths[share], self.settings.micro_words)[:-1])


def runs_of(indices: np.ndarray, lengths: np.ndarray, words: int) -> list[np.ndarray]:
    """Sentences in the order of `indices`, cut into runs of at most `words` words (at least one sentence)."""
    return np.split(indices, _cut(lengths[indices], words)[:-1]) if len(indices) else []


def _sorted(order: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """`order` by length, else as it was; lengths of 16 bits are sorted by counting, without comparing."""
    small = np.uint16 if int(lengths.max()) < 2**16 else lengths.dtype
    return order[np.argsort(lengths[order].astype(small), kind="stable")]


def _cut(lengths: np.ndarray, words: int) -> np.ndarray:
    """Where to cut `lengths` into runs of at most `words` (at least one sentence): one search per run, not per item."""
    total = np.cumsum(lengths, dtype=np.int64)
    ends, start = [], 0
    while start < len(lengths):
        before = int(total[start - 1]) if start else 0
        start = max(start + 1, int(np.searchsorted(total, before + words, side="right")))
        ends.append(start)
    return np.array(ends)
