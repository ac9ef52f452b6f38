"""The global batch order: which sentences each step trains on. It knows lengths and settings, never the text.

The order is a pure function of (lengths, batch settings, seed). Workers, strategies and interruptions do not change it,
so a position (epoch, cursor) is the only state of the data.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lockstep.data.data_settings import BatchSettings
from lockstep.errors import LockstepError


@dataclass(frozen=True)
class Position:
    """The next batch to consume: batch number `cursor` of epoch `epoch`."""

    epoch: int = 0
    cursor: int = 0


@dataclass(frozen=True)
class GlobalBatch:
    """All sentences of one step, all workers together."""

    indices: np.ndarray  # [sentences] indices into the training set
    target_words: int
    after: Position  # the position after this batch

    @property
    def digest(self) -> str:
        """A checksum of these sentences in this order, for the journal."""
        return f"{zlib.crc32(np.ascontiguousarray(self.indices, dtype=np.int64).tobytes()):08x}"


class Order:
    """The sequence of global batches."""

    def __init__(
        self, source_lengths: np.ndarray, target_lengths: np.ndarray, settings: BatchSettings, seed: int
    ) -> None:
        if settings.per != "global":
            raise ValueError("a per-worker batch size must be converted to a global one first")
        if settings.words is None and settings.sentences is None:
            remedy = "Set batch.words or batch.sentences."
            raise LockstepError("batch.images counts images, but the data is text.", remedy, code=2)
        self.source_lengths, self.target_lengths = source_lengths, target_lengths
        self.settings, self.seed = settings, seed

    def check(self) -> None:
        """Raises if a training sentence has more target words than a batch may have."""
        longest, words = int(self.target_lengths.max()), self.settings.words
        if words is not None and words < longest:
            raise LockstepError(
                f"batch.words {words} is smaller than the longest training sentence ({longest} target words).",
                f"Set batch.words to at least {longest}, or lower data.max_pieces.",
                code=2,
            )

    def epoch(self, number: int) -> list[np.ndarray]:
        """Returns the batches of one epoch, each an array of indices. Every sentence occurs once."""
        draw = np.random.Generator(np.random.Philox(key=np.array([self.seed % 2**64, number], dtype=np.uint64)))
        order = np.arange(len(self.target_lengths), dtype=np.int32 if len(self.target_lengths) < 2**31 else np.int64)
        if self.settings.shuffle:
            draw.shuffle(order)
        if self.settings.bucket:  # the sorts are stable: sentences of equal lengths stay shuffled
            order = _sort_by_length(_sort_by_length(order, self.source_lengths), self.target_lengths)
        if self.settings.sentences is not None:
            ends = np.arange(self.settings.sentences, len(order) + self.settings.sentences, self.settings.sentences)
        else:
            assert self.settings.words is not None
            ends = _find_ends(self.target_lengths[order], self.settings.words)
        batches = np.split(order, ends[:-1])
        if self.settings.bucket and self.settings.shuffle:
            batches = [batches[i] for i in draw.permutation(len(batches))]
        return batches

    def batches(self, position: Position) -> Iterator[GlobalBatch]:
        """Yields batches without end, starting at `position`."""
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
        """Returns the sentences of one worker.

        With `balance`, workers take sentences in turn, the longest first, in the order 0, 1, 2, 2, 1, 0. All get about
        the same number of words, because the slowest worker determines the speed of all.
        """
        if not self.settings.balance:
            return np.array_split(batch.indices, workers)[worker]
        cost = self.source_lengths[batch.indices] + self.target_lengths[batch.indices]
        ranked = batch.indices[np.argsort(-cost, kind="stable")]
        turn = np.arange(len(ranked)) % (2 * workers)
        return ranked[np.minimum(turn, 2 * workers - 1 - turn) == worker]

    def target_words(self, share: np.ndarray) -> int:
        return int(self.target_lengths[share].sum())

    def micro_batches(self, share: np.ndarray) -> list[np.ndarray]:
        """Splits a share into micro-batches of at most `micro_words` target words."""
        if self.settings.micro_words is None or len(share) < 2:
            return [share]
        return split_by_words(share, self.target_lengths, self.settings.micro_words)


def split_by_words(indices: np.ndarray, lengths: np.ndarray, words: int) -> list[np.ndarray]:
    """Splits `indices` into runs of sentences with at most `words` words together; a run has at least one sentence."""
    return np.split(indices, _find_ends(lengths[indices], words)[:-1]) if len(indices) else []


def _sort_by_length(order: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Sorts `order` by length with a stable sort. NumPy sorts 16-bit lengths with a radix sort, which is faster."""
    small = np.uint16 if int(lengths.max()) < 2**16 else lengths.dtype
    return order[np.argsort(lengths[order].astype(small), kind="stable")]


def _find_ends(lengths: np.ndarray, words: int) -> np.ndarray:
    """Returns the end of each run of sentences with at most `words` words; a run has at least one sentence."""
    total = np.cumsum(lengths, dtype=np.int64)
    ends, start = [], 0
    while start < len(lengths):
        before = int(total[start - 1]) if start else 0
        start = max(start + 1, int(np.searchsorted(total, before + words, side="right")))
        ends.append(start)
    return np.array(ends)
