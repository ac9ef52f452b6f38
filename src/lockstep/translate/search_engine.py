"""What searches for translations: piece ids in, hypotheses out. torch and CTranslate2 each have an implementation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lockstep.data.corpus.batches import split_by_words
from lockstep.translate.search_settings import SearchSettings

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Hypothesis:
    """A translation that the search found. `score` is its log-probability divided by the length penalty."""

    ids: list[int]  # pieces, without the end mark
    score: float
    attention: npt.NDArray[np.float32] | None = None  # [pieces, source pieces]


class Engine(Protocol):
    """A model that translates sentences of piece ids, without end marks."""

    @property
    def can_attend(self) -> bool:
        """Can it return attention?"""
        ...

    def search(
        self,
        sentences: Sequence[Sequence[int]],
        settings: SearchSettings,
        n_best: int = 1,
        with_attention: bool = False,
        report: Callable[[Integers], None] = lambda done: None,
    ) -> list[list[Hypothesis]]:
        """Returns the best hypotheses of each sentence, the best first. Calls `report` with the indices of the sentences
        of every batch that is done."""
        ...


def find_limits(lengths: npt.ArrayLike, settings: SearchSettings) -> Integers:
    """Returns the most words that the translation of each sentence may have, with its end mark, from the words of the
    sentences."""
    longest = np.asarray(lengths).astype(np.float32) * np.float32(settings.max_ratio) + np.float32(10.0)
    limits: Integers = longest.astype(np.int64)
    return limits if settings.max_words is None else limits.clip(max=settings.max_words)


def divide(sentences: Sequence[Sequence[int]], words: int) -> list[Integers]:
    """Returns the indices of sentences that are decoded together, those of similar length, the longest ones first. Together
    they have at most `words` words, with end marks."""
    lengths = np.array([len(sentence) + 1 for sentence in sentences], dtype=np.int64)
    return split_by_words(np.argsort(-lengths, kind="stable"), lengths, words)


def refuse_many(n_best: int, beam: int) -> None:
    """Raises when more hypotheses are wanted than the search keeps."""
    from lockstep.errors import LockstepError

    if n_best > beam:
        raise LockstepError(
            f"A beam of {beam} cannot find the {n_best} best translations.", f"Use a beam of {n_best} or more.", code=2
        )
