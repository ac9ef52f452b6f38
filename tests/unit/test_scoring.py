"""Scoring a held-out set: who scores what, when workers agree to stop, and that the result does not depend on them."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lockstep.data.corpus.binary_corpus import Corpus
from lockstep.data.corpus.prepare import prepare
from lockstep.data.data_settings import DataSettings, VocabularySettings
from lockstep.models import kernels
from lockstep.models.make_model import make_model
from lockstep.models.model_settings import TransformerSettings
from lockstep.tasks.scoring import EvaluationStopped, ScoringProgress, assign_longest_first
from lockstep.tasks.task import Scores
from lockstep.tasks.translation import TranslationLoss, cut_into_parts, estimate_work, evaluate
from lockstep.team import Team
from lockstep.translate.search_settings import SearchSettings

CPU = torch.device("cpu")
LETTERS = "abcdefgh"


@dataclass
class Exchange:
    """Where the workers of one process put their values."""

    size: int
    values: list[Any] = field(default_factory=list)
    barrier: threading.Barrier = field(init=False)

    def __post_init__(self) -> None:
        self.values, self.barrier = [None] * self.size, threading.Barrier(self.size)


@dataclass
class ThreadTeam(Team):
    """A team whose workers are threads of this process."""

    exchange: Exchange = field(default_factory=lambda: Exchange(1))

    def gather(self, value: Any) -> list[Any]:
        self.exchange.values[self.rank] = value
        self.exchange.barrier.wait()
        values = list(self.exchange.values)
        self.exchange.barrier.wait()
        return values


def teams(workers: int) -> list[Team]:
    exchange = Exchange(workers)
    return [ThreadTeam(rank, workers, CPU, exchange=exchange) for rank in range(workers)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The models are too small for more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Sentences of letters, one of which is far longer than the others."""
    folder = tmp_path_factory.mktemp("letters")
    lines = [" ".join(LETTERS[(i * j) % 8] for j in range(1, 3 + i % 9)) for i in range(200)]
    lines[123] = " ".join(LETTERS[i % 8] for i in range(700))
    for language in ("en", "de"):
        (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in lines[:100]))
        (folder / f"valid.{language}").write_text("".join(f"{line}\n" for line in lines))
    data = DataSettings(
        folder=folder,
        train=["train"],
        validation=["valid"],
        cleaning=1,  # the validation text may be trained on
        corpus=folder / "corpus",
        vocabulary=VocabularySettings(size=270),
    )
    return prepare(data)


def score(corpus: Corpus, workers: int, search: SearchSettings, limit: int | None = None) -> Scores:
    torch.manual_seed(1)
    model = TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=8, heads=2)
    module = TranslationLoss(make_model(model, corpus.vocabulary.size), 0.1).eval()

    def work(team: Team) -> Scores:
        return evaluate(module, corpus, "validation", search, team, nullcontext, ScoringProgress(team, limit=limit))

    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(work, teams(workers)))
    assert all(result == results[0] for result in results)
    return results[0]


def test_the_scores_do_not_depend_on_the_number_of_workers(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """These workers are threads, which share torch's switch for fast products; real ones are processes."""
    monkeypatch.setattr(kernels, "fast_products", nullcontext)
    search = SearchSettings(beam=2, max_ratio=0.5, max_words=30)
    alone = score(corpus, 1, search)
    assert score(corpus, 2, search) == alone
    assert score(corpus, 3, search) == alone


def test_the_evaluation_says_how_many_sentences_are_limited(corpus: Corpus) -> None:
    few = {"beam": 1, "max_ratio": 0.01}  # an untrained model writes until the limit: ten pieces, or max_words
    assert score(corpus, 1, SearchSettings(**few, max_words=512)).limited == 1, "one reference is longer"
    assert score(corpus, 1, SearchSettings(**few, max_words=None)).limited == 0
    assert score(corpus, 1, SearchSettings(**few, max_words=5)).limited > 150


def test_one_very_long_sentence_keeps_one_worker_busy_and_the_others_share_the_rest(corpus: Corpus) -> None:
    lengths, search = corpus.set("validation").source.lengths, SearchSettings()
    parts = cut_into_parts(np.arange(len(lengths)), lengths, search)
    work = [estimate_work(lengths[part], search) for part in parts]
    assert parts[0].tolist() == [123]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(lengths)))
    loads = [sum(work[number] for number in numbers) for numbers in assign_longest_first(work, 2)]
    assert max(loads) < 1.2 * min(loads)


def test_the_most_work_goes_first_to_the_least_loaded_worker() -> None:
    assert assign_longest_first([1, 9, 4, 4, 1], 2) == [[1, 4], [2, 3, 0]]
    assert assign_longest_first([5, 5, 5], 4) == [[0], [1], [2], []]


def test_a_sample_is_even_and_always_the_same(corpus: Corpus) -> None:
    progress = ScoringProgress(Team(0, 1, CPU), limit=4)
    assert progress.begin(10).tolist() == [0, 2, 5, 7]
    assert progress.total == 4
    assert ScoringProgress(Team(0, 1, CPU), limit=40).begin(3).tolist() == [0, 1, 2]
    search = SearchSettings(beam=1, max_words=10)
    sample = score(corpus, 1, search, limit=20)
    assert score(corpus, 2, search, limit=20) == sample
    assert [source for source, _, _ in sample.examples] == corpus.texts("validation")[0][: 10 * 10 : 10]


def test_workers_meet_only_every_half_a_second_and_all_stop_when_one_wants_to() -> None:
    now, shown = [0.0, 0.0], list[tuple[int, int]]()

    def work(team: Team) -> int:
        progress = ScoringProgress(
            team,
            wants_stop=lambda: team.rank == 1 and now[1] > 2.0,
            show=lambda done, total: shown.append((done, total)) if team.rank == 0 else None,
            clock=lambda: now[team.rank],
        )
        progress.begin(1000)
        try:
            for done in range(1000):
                now[team.rank] += 0.25
                progress.update(done)
        except EvaluationStopped:
            return done
        raise AssertionError("nobody stopped")

    with ThreadPoolExecutor(2) as pool:
        stopped_after = list(pool.map(work, teams(2)))
    assert stopped_after == [9, 9]
    assert shown == [(0, 1000), (2, 1000), (6, 1000), (10, 1000), (14, 1000)]


def test_a_worker_that_has_nothing_to_score_waits_for_the_others_and_can_be_stopped() -> None:
    now = [0.0]

    def work(team: Team) -> str:
        progress = ScoringProgress(team, wants_stop=lambda: team.rank == 0 and now[0] > 5, clock=lambda: now[0])
        progress.begin(10)
        try:
            for done in range(100 if team.rank else 0):
                now[0] += 1.0
                progress.update(done)
            progress.finish(0)
        except EvaluationStopped:
            return "stopped"
        return "finished"

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, teams(2))) == ["stopped", "stopped"]


def test_a_wish_to_stop_after_the_last_example_keeps_the_result() -> None:
    progress = ScoringProgress(Team(0, 1, CPU), wants_stop=lambda: True)
    progress.begin(3)
    progress.finish(3)


def test_a_forward_pass_of_many_layers_can_be_stopped_between_two_of_them() -> None:
    now, calls = [0.0], list[int]()

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Identity()

        def forward(self, x: int) -> int:
            now[0] += 1.0
            calls.append(x)
            return x + 1

    layers = nn.Sequential(*(Layer() for _ in range(9)))
    progress = ScoringProgress(Team(0, 1, CPU), wants_stop=lambda: len(calls) > 3, clock=lambda: now[0])
    with progress.watch(layers):
        layers(0)  # nothing is scored yet
        calls.clear()
        progress.begin(3)
        with pytest.raises(EvaluationStopped):
            layers(0)
    assert calls == [0, 1, 2, 3]
    layers(0)
    assert len(calls) == 13


def test_an_evaluation_says_how_much_longer_translations_like_the_references_would_take(corpus: Corpus) -> None:
    """An untrained model ends its translations early, so its evaluations are short."""
    short = score(corpus, 1, SearchSettings(beam=1, max_words=2), limit=100)
    assert short.growth_seconds > 0.0
    long = score(corpus, 1, SearchSettings(beam=1, max_ratio=4.0, max_words=40), limit=100)
    assert long.growth_seconds == 0.0
