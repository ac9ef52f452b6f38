"""Promise 1 and 2: order and update do not depend on the number of workers."""

from itertools import islice
from pathlib import Path

import pytest

from conftest import Tiny, lockstep, steps
from lockstep.data.batches import Order, Position
from lockstep.data.corpus import Corpus
from lockstep.data.settings import BatchSettings

WORKERS = (1, 2, 3)
UNEQUAL = ("batch.words=null", "batch.sentences=7", "batch.bucket=false", "batch.balance=false")


@pytest.fixture(scope="module")
def runs(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("same-update")
    for workers in WORKERS:
        settings = ("train.steps=30", "model.dropout=0", *UNEQUAL)
        lockstep("train", tiny.config, *settings, "--workers", workers, "--run", folder / str(workers))
    return {workers: folder / str(workers) for workers in WORKERS}


@pytest.mark.parametrize("workers", [2, 3])
def test_losses_follow_the_single_process(runs: dict[int, Path], workers: int) -> None:
    single = [line["loss"] for line in steps(runs[1])]
    assert len(single) == 30
    assert [line["loss"] for line in steps(runs[workers])] == pytest.approx(single, rel=1e-5)


@pytest.mark.parametrize("workers", [2, 3])
def test_the_same_sentences_make_every_step(runs: dict[int, Path], workers: int) -> None:
    single = [(line["step"], line["batch"]) for line in steps(runs[1])]
    for rank in range(workers):
        assert [(line["step"], line["batch"]) for line in steps(runs[workers], rank)] == single


@pytest.mark.parametrize("workers", [2, 3])
def test_the_workers_had_unequal_shares_that_add_up(runs: dict[int, Path], workers: int) -> None:
    single = [line["words"]["target"] for line in steps(runs[1])]
    by_rank = [[line["words"]["target"] for line in steps(runs[workers], rank)] for rank in range(workers)]
    assert [sum(shares) for shares in zip(*by_rank, strict=True)] == single
    unequal = [max(shares) - min(shares) >= 3 for shares in zip(*by_rank, strict=True)]
    assert sum(unequal) > 20, "the test must have unequal shares to show anything"


@pytest.mark.parametrize("workers", [2, 3])
def test_every_worker_journals_the_global_loss(runs: dict[int, Path], workers: int) -> None:
    primary = [line["loss"] for line in steps(runs[workers])]
    assert all([line["loss"] for line in steps(runs[workers], rank)] == primary for rank in range(workers))


def test_micro_batches_change_nothing(runs: dict[int, Path], tiny: Tiny, tmp_path: Path) -> None:
    settings = ("train.steps=30", "model.dropout=0", "batch.micro_words=12", *UNEQUAL)
    lockstep("train", tiny.config, *settings, "--workers", 2, "--run", tmp_path)
    single = [line["loss"] for line in steps(runs[1])]
    assert [line["loss"] for line in steps(tmp_path)] == pytest.approx(single, rel=1e-5)


def test_a_worker_without_a_sentence_takes_part(runs: dict[int, Path], tiny: Tiny, tmp_path: Path) -> None:
    settings = ("train.steps=3", "model.dropout=0", "batch.words=null", "batch.sentences=2", "batch.bucket=false")
    for workers in (1, 3):
        lockstep("train", tiny.config, *settings, "--workers", workers, "--run", tmp_path / str(workers))
    single = [line["loss"] for line in steps(tmp_path / "1")]
    assert [line["loss"] for line in steps(tmp_path / "3")] == pytest.approx(single, rel=1e-5)
    assert min(line["words"]["target"] for line in steps(tmp_path / "3", 2)) == 0


def test_a_budget_per_worker_becomes_a_global_one_and_is_kept(tiny: Tiny, tmp_path: Path) -> None:
    settings = ("batch.words=null", "batch.sentences=5", "batch.per=worker", "batch.bucket=false")
    lockstep("train", tiny.config, *settings, "train.steps=4", "--workers", 2, "--run", tmp_path / "a")
    lockstep("train", tiny.config, *settings, "train.steps=8", "--workers", 3, "--run", tmp_path / "a")
    pairs = Corpus.open(tiny.folder / "corpus").set("train")
    ten = BatchSettings(sentences=10, bucket=False)
    expected = Order(pairs.source.lengths, pairs.target.lengths, ten, seed=1).batches(Position())
    assert [line["batch"] for line in steps(tmp_path / "a")] == [batch.digest for batch in islice(expected, 8)]
