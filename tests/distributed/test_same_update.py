"""Promises 1 and 2: order and update depend neither on the number of workers nor on how their gradients meet."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from conftest import LSTM, Tiny, lockstep, steps, weights
from lockstep.data.corpus.batches import Order, Position
from lockstep.data.corpus.binary_corpus import Corpus
from lockstep.data.data_settings import BatchSettings

UNEQUAL = ("batch.words=null", "batch.sentences=7", "batch.bucket=false", "batch.balance=false")
VARIANCE = "model.layers.0.norm.running_var"
PACKETS = "strategy.bucket_mb=0.02"  # so that even the tiny model travels in several


@dataclass(frozen=True)
class Way:
    """One way for gradients to cross processes, and how close to a single process it must stay."""

    settings: tuple[object, ...]
    tolerance: float = 1e-5
    workers: tuple[int, ...] = (2, 3)
    sent: Callable[[int, int], float] | None = lambda p, w: 2 * p * (w - 1) / w
    """Bytes that a worker sends in a step, for `p` bytes of parameters and `w` workers, as docs/use/strategies.md has it.
    None: it depends on the layers or the text, and has a test of its own."""
    models: tuple[str, ...] = ("transformer", "lstm")


WAYS = {
    "allreduce": Way((PACKETS,)),
    "operators of torch": Way(("train.kernels=torch", PACKETS), workers=(2,), models=("transformer",)),
    "bf16": Way(("strategy.gradients=bf16",), 1e-2, sent=lambda p, w: p * (w - 1) / w),
    "fp16": Way(("strategy.gradients=fp16",), 1e-2, (2,), sent=lambda p, w: p * (w - 1) / w),
    "sharded": Way(("strategy.name=sharded",), sent=None),
    "sharded, kept": Way(("strategy.name=sharded", "strategy.keep_gathered=true"), workers=(2,), sent=None),
    "sharded, bf16": Way(("strategy.name=sharded", "strategy.gradients=bf16"), 1e-2, (3,), sent=None),
    "server-0": Way(("strategy.name=server", PACKETS)),
    "server-1": Way(("strategy.name=server", "--servers", 1), sent=lambda p, w: p),
    "server-2": Way(("strategy.name=server", "--servers", 2, PACKETS), sent=lambda p, w: p),
    "resilient": Way(("strategy.name=resilient", PACKETS)),
    "resilient-bf16": Way(
        ("strategy.name=resilient", "strategy.gradients=bf16"), 1e-2, (2,), sent=lambda p, w: p * (w - 1) / w
    ),
    "one-worker-server": Way(("strategy.name=server", "--servers", 1, PACKETS), workers=(1,), sent=lambda p, w: p),
}
ROWS = ("strategy.name=server", "strategy.embeddings=rows", PACKETS)
WAYS |= {
    "rows-0": Way(ROWS, sent=None, models=("lstm",)),
    "rows-1": Way((*ROWS, "--servers", 1), sent=None, models=("lstm",)),
}
MODELS = {"transformer": (), "lstm": LSTM}
CLIP = 0.3  # small enough that both have something to clip
LEFT_TO_TEST_ALL = {
    ("bf16", 3),
    ("fp16", 2),
    ("server-1", 3),
    ("sharded", 3),
    ("server-2", 2),
    ("server-2", 3),
    ("one-worker-server", 1),
    ("resilient", 3),
    ("sharded, kept", 2),
    ("sharded, bf16", 3),
    ("resilient-bf16", 2),
}
TRIED_WITH_THE_LSTM = {("allreduce", 2), ("rows-0", 3)}
"""Of the others, `make test-all` tries those whose gradients are exact."""


def slow(model: str, name: str, workers: int) -> bool:
    case = (name, workers)
    return case in LEFT_TO_TEST_ALL if model == "transformer" else case not in TRIED_WITH_THE_LSTM


CASES = [
    pytest.param(
        model,
        name,
        workers,
        marks=[
            pytest.mark.xdist_group(f"same-update-{model}-{name}"),
            *([pytest.mark.slow] if slow(model, name, workers) else []),
        ],
    )
    for model in MODELS
    for name, way in WAYS.items()
    for workers in way.workers
    if model in way.models and (model == "transformer" or way.tolerance < 1e-3)
]


def left(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def train(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Thirty steps in some way; each is run once."""
    folder = tmp_path_factory.mktemp("same-update")

    def train(name: str = "single", workers: int = 1, model: str = "transformer") -> Path:
        run = folder / f"{model}-{name}-{workers}"
        if not run.exists():
            way = WAYS.get(name, Way(()))
            settings = (
                *MODELS[model],
                "train.steps=30",
                "model.dropout=0",
                f"train.clip={CLIP}",
                *UNEQUAL,
                *way.settings,
            )
            lockstep("train", tiny.config, *settings, "--workers", workers, "--run", run)
        return run

    return train


@pytest.fixture(scope="module")
def runs(train: Callable[..., Path]) -> dict[int, Path]:
    return {1: train(), 2: train("allreduce", 2), 3: train("allreduce", 3)}


@pytest.mark.parametrize(("model", "name", "workers"), CASES)
def test_losses_follow_the_single_process(train: Callable[..., Path], model: str, name: str, workers: int) -> None:
    single, other = steps(train(model=model)), steps(train(name, workers, model))
    assert len(single) == 30
    assert [line["batch"] for line in other] == [line["batch"] for line in single]
    losses = [line["loss"] for line in single]
    assert [line["loss"] for line in other] == pytest.approx(losses, rel=WAYS[name].tolerance)
    assert any(line["grad_norm"] > CLIP for line in other), "clipping must have had something to do"


@pytest.mark.parametrize(("model", "name", "workers"), [case for case in CASES if WAYS[str(case.values[1])].sent])
def test_what_is_sent_follows_the_documented_formula(
    train: Callable[..., Path], model: str, name: str, workers: int
) -> None:
    run = train(name, workers, model)
    parameters = {key: value for key, value in weights(run, 30).items() if not key.startswith("optimizer.")}
    formula = WAYS[name].sent
    assert formula is not None
    expected = formula(sum(map(len, parameters.values())), workers)
    for rank in range(workers):
        assert all(line["bytes_sent"] == pytest.approx(expected, rel=1e-3) for line in steps(run, rank))


@pytest.mark.parametrize("name", ["rows-0", left("rows-1")])
def test_rows_of_tables_make_the_same_model_and_less_is_sent(train: Callable[..., Path], name: str) -> None:
    workers, whole = (3, "server-0") if name == "rows-0" else (2, "server-0")
    single, run = weights(train(model="lstm"), 30), train(name, workers, "lstm")
    for key, value in weights(run, 30).items():
        expected = np.frombuffer(single[key], np.float32)
        assert np.frombuffer(value, np.float32) == pytest.approx(expected, rel=1e-2, abs=1e-4), key
    sent = [sum(line["bytes_sent"] for line in steps(of, 0)) for of in (run, train(whole, workers, "lstm"))]
    assert 0 < sent[0] < 0.9 * sent[1]


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


@pytest.mark.parametrize(
    "name", ["allreduce", left("sharded"), left("sharded, kept"), left("server-1"), left("resilient")]
)
def test_micro_batches_change_nothing(runs: dict[int, Path], tiny: Tiny, tmp_path: Path, name: str) -> None:
    settings = ("train.steps=30", "model.dropout=0", f"train.clip={CLIP}", "batch.micro_words=12", *UNEQUAL)
    lockstep("train", tiny.config, *settings, *WAYS[name].settings, "--workers", 2, "--run", tmp_path)
    single = [line["loss"] for line in steps(runs[1])]
    assert [line["loss"] for line in steps(tmp_path)] == pytest.approx(single, rel=1e-5)


@pytest.mark.parametrize("name", ["allreduce", "sharded", left("server-0"), left("resilient")])
def test_a_worker_without_a_sentence_takes_part(tiny: Tiny, tmp_path: Path, name: str) -> None:
    settings = ("train.steps=3", "model.dropout=0", "batch.words=null", "batch.sentences=2", "batch.bucket=false")
    for workers in (1, 3):
        way = WAYS[name].settings if workers > 1 else ()
        lockstep("train", tiny.config, *settings, *way, "--workers", workers, "--run", tmp_path / str(workers))
    single = [line["loss"] for line in steps(tmp_path / "1")]
    assert [line["loss"] for line in steps(tmp_path / "3")] == pytest.approx(single, rel=1e-5)
    assert min(line["words"]["target"] for line in steps(tmp_path / "3", 2)) == 0


IMAGES = [
    pytest.param(name, workers, marks=[] if (name, workers) in usual else [pytest.mark.slow])
    for usual in [{("allreduce", 2)}]
    for name in ("allreduce", "sharded", "sharded, kept", "server-0", "server-1", "resilient")
    for workers in (2, 3)
]


@pytest.fixture(scope="module")
def classified(tiny_images: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A few steps on images; each is run once. Seven images a step, and four in the last of a pass, are unequal shares."""
    folder = tmp_path_factory.mktemp("same-update-images")

    def train(name: str = "single", workers: int = 1, *more: str) -> Path:
        run = folder / "-".join([name, str(workers), *more])
        if not run.exists():
            settings = ("train.steps=10", *more, *WAYS.get(name, Way(())).settings)
            lockstep("train", tiny_images.config, *settings, "--workers", workers, "--run", run)
        return run

    return train


@pytest.mark.parametrize(("name", "workers"), IMAGES)
def test_batch_norm_makes_images_one_batch(classified: Callable[..., Path], name: str, workers: int) -> None:
    """The tolerance is for rectifiers that rounding flips; images normalised apart would differ in the first digit."""
    single, run = classified(), classified(name, workers)
    other = steps(run)
    assert [line["batch"] for line in other] == [line["batch"] for line in steps(single)]
    assert [line["loss"] for line in other] == pytest.approx([line["loss"] for line in steps(single)], rel=1e-3)
    assert sum(steps(run, rank)[0]["words"]["target"] for rank in range(workers)) == 7
    assert {line["sums"]["count"] for line in other} == {2 * 7}, "seven layers, each forward and backward"
    assert all(0 < line["sums"]["seconds"] <= line["phases"]["merge"] for line in other)
    mine, expected = (np.frombuffer(weights(of, 10)[VARIANCE], np.float32) for of in (run, single))
    assert mine == pytest.approx(expected, rel=1e-2), "running averages are saved, and those of all workers' images"


@pytest.mark.parametrize(
    "name", ["allreduce", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sharded", "server-0"))]
)
def test_a_worker_without_an_image_takes_part(classified: Callable[..., Path], name: str) -> None:
    two = ("batch.images=2", "train.steps=4")
    single, other = (steps(classified(*way, *two)) for way in (("single", 1), (name, 3)))
    assert [line["loss"] for line in other] == pytest.approx([line["loss"] for line in single], rel=1e-3)
    assert {line["words"]["target"] for line in steps(classified(name, 3, *two), 2)} == {0}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ("strategy.name=replicas",),
        ("strategy.name=local", "strategy.every=3"),
        ("strategy.name=server", "strategy.mode=async"),
    ],
    ids=["replicas", "local", "async"],
)
def test_where_workers_do_not_move_together_batch_norm_is_each_one_s_own(
    tiny_images: Tiny, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    lockstep("train", tiny_images.config, "batch.images=2", *settings, "--workers", 2, "--run", tmp_path)
    assert all(line["loss"] is not None for line in steps(tmp_path))
    assert len(weights(tmp_path, 8)[VARIANCE]) == 4 * 4


def test_a_budget_per_worker_becomes_a_global_one_and_is_kept(tiny: Tiny, tmp_path: Path) -> None:
    settings = ("batch.words=null", "batch.sentences=5", "batch.per=worker", "batch.bucket=false")
    lockstep("train", tiny.config, *settings, "train.steps=4", "--workers", 2, "--run", tmp_path / "a")
    lockstep("train", tiny.config, *settings, "train.steps=8", "--workers", 3, "--run", tmp_path / "a")
    pairs = Corpus.open(tiny.folder / "corpus").set("train")
    ten = BatchSettings(sentences=10, bucket=False)
    expected = Order(pairs.source.lengths, pairs.target.lengths, ten, seed=1).batches(Position())
    assert [line["batch"] for line in steps(tmp_path / "a")] == [batch.digest for batch in islice(expected, 8)]
