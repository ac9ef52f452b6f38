"""The sentences of one side as one text, for array operations: counting words, hashing, finding duplicates."""

from dataclasses import dataclass
from functools import cached_property
from itertools import compress

import numpy as np
import numpy.typing as npt

from lockstep.data.text.languages import uses_spaces

CHARACTERS_PER_WORD = 2
"""In languages that do not put spaces between words."""
SPACED_SCRIPTS_END = 0x590
"""Characters below are Latin, Greek, Cyrillic or Armenian letters, digits and their punctuation."""
HASHES_AT_ONCE = 1 << 22
WHITESPACE = (
    "\t\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
)
WHITESPACE += "\u2028\u2029\u202f\u205f\u3000"
"""All whitespace characters except the space and the line feed."""

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

    def count_words(self, language: str, all_by_characters: bool = False) -> Counts:
        """Counts the words of every sentence. In a language without spaces, two characters are a word, but words in Latin,
        Greek or Cyrillic letters are counted as such unless `all_by_characters`."""
        if uses_spaces(language):
            return (self.spaces + (self.ends > self.starts)).astype(np.int32)
        if all_by_characters:
            characters = np.fromiter(map(len, self.sentences), np.int32, len(self))
            return -(-characters // CHARACTERS_PER_WORD)
        codes = np.frombuffer(self.text.encode("utf-32-le"), np.uint32)
        in_word = (codes > ord(" ")) & (codes < SPACED_SCRIPTS_END)
        begins = in_word & ~np.concatenate([[False], in_word[:-1]])
        ends = np.flatnonzero(codes == ord("\n"))
        words, characters = (
            np.diff(np.cumsum(mask, dtype=np.int32)[ends], prepend=np.int32(0))
            for mask in (begins, codes >= SPACED_SCRIPTS_END)
        )
        return words + -(-characters // CHARACTERS_PER_WORD)

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
