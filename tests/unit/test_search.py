"""Beam search with a hand-written model: a table of log-probabilities that depends on the source sentence's first id, the
word before the last (in the cache, so that a wrong reordering shows) and the last word."""

import itertools
import math
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from lockstep.models.packed import Layout
from lockstep.translate.search import Cache, search
from lockstep.translate.search_engine import Hypothesis
from lockstep.translate.search_settings import SearchSettings

BOS, EOS = 0, 1
SHORT = 0.01  # max_ratio with which short sources get a limit of ten words
FORMULAS = pytest.mark.parametrize("normalise", ["length", "gnmt"])
PENALTIES = pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])


class WordsSoFar:
    """The decoding state: the source of every sentence and the previous word of every hypothesis."""

    def __init__(self, sources: Tensor, beam: int) -> None:
        self.sources = sources  # [rows]
        self.previous = torch.full((len(sources) * beam,), BOS)  # [rows * beam]

    def select(self, hypotheses: Tensor, sentences: Tensor | None) -> None:
        self.previous = self.previous[hypotheses]
        if sentences is not None:
            self.sources = self.sources[sentences]


class Table:
    """Log-probabilities by source, word before last, last word and next word. The begin mark is never written."""

    def __init__(self, log_probabilities: Tensor) -> None:
        self.log_probabilities = log_probabilities  # [sources, vocabulary, vocabulary, vocabulary]
        self.rows: list[int] = []  # sentences in the batch at each step

    @classmethod
    def random(cls, seed: int, sources: int = 8, words: int = 2, end: float = 0.0) -> "Table":
        """`words` ordinary words; `end` is added to the score of the end mark."""
        size = words + 2
        scores = torch.randn(sources, size, size, size, generator=torch.Generator().manual_seed(seed)) * 1.5
        scores[..., EOS] += end
        scores[..., BOS] = -torch.inf
        return cls(scores.log_softmax(-1))

    def encode(self, ids: Tensor, layout: Layout) -> Tensor:
        firsts = (layout.positions == 0).nonzero().squeeze(1)
        return ids[firsts]

    def start(self, memory: Tensor, layout: Layout, beam: int) -> list[Cache]:
        return [WordsSoFar(memory, beam)]

    def step(self, ids: Tensor, position: int, caches: list[Cache]) -> Tensor:
        (cache,) = caches
        assert isinstance(cache, WordsSoFar)
        rows, beam = ids.shape
        self.rows.append(rows)
        before = cache.previous.view(rows, beam)
        cache.previous = ids.flatten()
        return self.log_probabilities[cache.sources[:, None], before, ids]

    def score(self, source: int, words: tuple[int, ...]) -> float:
        """Returns the log-probability of these words (the last may be the end mark)."""
        padded = (BOS, BOS, *words)
        table = self.log_probabilities.numpy()[source]
        return sum(float(table[padded[i : i + 3]]) for i in range(len(words)))


Formula = Literal["length", "gnmt"]


def search_best(
    table: Table,
    sources: list[int],
    beam: int,
    length_penalty: float = 0.6,
    normalise: Formula = "length",
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """Translates sources that are sentences of one word."""
    settings = SearchSettings(beam=beam, length_penalty=length_penalty, max_ratio=SHORT, normalise=normalise)
    lengths = np.ones(len(sources), dtype=np.int64)
    return search(table, torch.tensor(sources), lengths, settings, BOS, EOS, n_best=n_best)


def run(
    table: Table, sources: list[int], beam: int, length_penalty: float = 0.6, normalise: Formula = "length"
) -> list[list[int]]:
    """Returns the words of the best translations."""
    return [best[0].ids for best in search_best(table, sources, beam, length_penalty, normalise)]


def penalize(score: float, length: int, length_penalty: float, normalise: Formula) -> float:
    """`length` is with the end mark."""
    if normalise == "gnmt":
        return score / ((5 + length) / 6) ** length_penalty
    return score / length**length_penalty


def search_exhaustively(table: Table, source: int, limit: int, length_penalty: float, normalise: Formula) -> list[int]:
    """Returns the best of all translations whose words and end mark fit into `limit`."""
    ordinary = range(2, table.log_probabilities.shape[-1])
    candidates = [(*words, EOS) for length in range(limit) for words in itertools.product(ordinary, repeat=length)]
    best = max(
        candidates, key=lambda words: penalize(table.score(source, words), len(words), length_penalty, normalise)
    )
    return list(best[:-1])


def search_with_lists(
    table: Table, source: int, beam: int, limit: int, length_penalty: float, normalise: Formula
) -> list[tuple[float, tuple[int, ...]]]:
    """Beam search on plain lists, the best first, that stops when `beam` hypotheses have ended, or at the limit."""
    following = range(EOS, table.log_probabilities.shape[-1])
    alive: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, limit + 1):
        longer = sorted(((table.score(source, (*w, n)), (*w, n)) for _, w in alive for n in following), reverse=True)
        ended += [(penalize(s, length, length_penalty, normalise), w[:-1]) for s, w in longer[:beam] if w[-1] == EOS]
        alive = [(s, w) for s, w in longer if w[-1] != EOS][:beam]
        if len(ended) >= beam:
            break
    unfinished = [(penalize(s, length, length_penalty, normalise), w) for s, w in alive]
    return sorted(ended, reverse=True) + unfinished


@PENALTIES
@FORMULAS
@pytest.mark.parametrize("end", [0.0, -2.0])
def test_a_beam_of_all_hypotheses_finds_the_best_of_all_translations(
    length_penalty: float, end: float, normalise: Formula
) -> None:
    table = Table.random(seed=1, sources=4, end=end)
    translations = run(table, [0, 1, 2, 3], 1024, length_penalty, normalise)
    assert translations == [search_exhaustively(table, source, 10, length_penalty, normalise) for source in range(4)]


def test_a_higher_length_penalty_gives_longer_translations() -> None:
    table = Table.random(seed=2, sources=30)
    words = [sum(map(len, run(table, list(range(30)), 16, penalty))) for penalty in (0.0, 1.0, 2.0)]
    assert words[0] < words[1] < words[2]


@PENALTIES
@FORMULAS
@pytest.mark.parametrize("beam", [2, 3, 5])
def test_stopping_when_no_hypothesis_can_win_changes_nothing(
    beam: int, length_penalty: float, normalise: Formula
) -> None:
    table = Table.random(seed=3, sources=20, words=4, end=0.5)
    translations = run(table, list(range(20)), beam, length_penalty, normalise)
    expected = [search_with_lists(table, source, beam, 10, length_penalty, normalise) for source in range(20)]
    assert translations == [list(best[0][1]) for best in expected]


@PENALTIES
@FORMULAS
def test_the_n_best_are_the_best_ended_hypotheses_with_their_scores(length_penalty: float, normalise: Formula) -> None:
    table = Table.random(seed=9, sources=20, words=4, end=0.5)
    results = search_best(table, list(range(20)), 5, length_penalty, normalise, n_best=3)
    for source, hypotheses in enumerate(results):
        expected = search_with_lists(table, source, 5, 10, length_penalty, normalise)[:3]
        assert [one.ids for one in hypotheses] == [list(words) for _, words in expected]
        assert [one.score for one in hypotheses] == pytest.approx([score for score, _ in expected], rel=1e-4)


@PENALTIES
@pytest.mark.parametrize("end", [0.5, -1.5])
def test_a_beam_of_one_is_greedy_search(length_penalty: float, end: float) -> None:
    table = Table.random(seed=4, sources=20, words=4, end=end)

    def greedy(source: int) -> list[int]:
        words = [BOS, BOS]
        while len(words) < 12:
            best = int(table.log_probabilities[source, words[-2], words[-1]].argmax())
            if best == EOS:
                break
            words.append(best)
        return words[2:]

    expected = [greedy(source) for source in range(20)]
    assert len(set(map(len, expected))) > 3
    assert run(table, list(range(20)), beam=1, length_penalty=length_penalty) == expected


@pytest.mark.parametrize("beam", [1, 4])
def test_a_sentence_is_translated_the_same_in_any_batch(beam: int) -> None:
    table = Table.random(seed=5, sources=12, words=4)
    together = run(table, list(range(12)), beam)
    assert together == [run(table, [source], beam)[0] for source in range(12)]
    assert together[::-1] == run(table, list(range(11, -1, -1)), beam)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_translation_without_end_stops_at_its_own_limit(beam: int) -> None:
    endless = Table.random(seed=6, sources=8, words=3, end=-math.inf)
    lengths = np.array([1, 6, 3])
    ids = torch.arange(8).repeat(2)[:10]
    translations = search(endless, ids, lengths, SearchSettings(beam=beam, max_ratio=1.5), BOS, EOS)
    assert [len(best[0].ids) for best in translations] == [11, 19, 14]
    assert all(word > EOS for best in translations for word in best[0].ids)


def test_the_best_unfinished_translation_is_taken_when_none_ended() -> None:
    endless = Table.random(seed=6, sources=1, words=2, end=-math.inf)
    best = max(itertools.product((2, 3), repeat=10), key=lambda words: endless.score(0, words))
    assert run(endless, [0], beam=1024) == [list(best)]


@pytest.mark.parametrize("beam", [1, 3])
def test_finished_sentences_leave_the_batch(beam: int) -> None:
    table = Table.random(seed=7, sources=3, words=3)
    table.log_probabilities[0] = torch.tensor([-math.inf, -0.001, -7.0, -8.0, -9.0])  # ends at once
    table.log_probabilities[1] = torch.tensor([-math.inf, -9.0, -0.01, -5.0, -6.0])  # reaches the limit
    run(table, [0, 1, 0], beam=beam, length_penalty=0.0)
    assert table.rows[0] == 3
    assert table.rows == sorted(table.rows, reverse=True)
    assert table.rows[beam:] == [1] * (10 - beam)  # both others are gone once `beam` translations of them ended


def test_no_step_is_computed_after_the_last_sentence_ended() -> None:
    table = Table.random(seed=7, sources=1, words=3)
    table.log_probabilities[0] = torch.tensor([-math.inf, -0.001, -7.0, -8.0, -9.0])
    assert run(table, [0, 0], beam=1) == [[], []]
    assert table.rows == [2]


def test_a_model_that_can_only_end_gives_empty_translations() -> None:
    table = Table.random(seed=8, sources=2)
    table.log_probabilities[:] = torch.tensor([-math.inf, 0.0, -math.inf, -math.inf])
    assert run(table, [0, 1], beam=3) == [[], []]
