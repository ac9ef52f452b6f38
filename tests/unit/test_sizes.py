"""The sizes that Lockstep chooses for a text and a machine."""

import itertools
from itertools import islice
from pathlib import Path

import pytest

from lockstep.cli.fit_sizes import fit_sizes
from lockstep.config import build
from lockstep.config.sizes import TextFacts, TrainingMachine, choose_sizes
from lockstep.data.corpus.prepare import prepare
from lockstep.demo_corpus import generate_pairs

LAPTOP, SERVER = TrainingMachine(cores=2, memory_gb=8), TrainingMachine(cores=32, memory_gb=256, gpus=4)
PAIRS = (10, 300, 3_000, 29_000, 200_000, 1_000_000, 5_000_000)


def tree(sizes: dict[str, object]) -> dict[str, object]:
    settings: dict[str, object] = {"data": {"grammar": {}}}
    for key, value in sizes.items():
        node = settings
        *groups, name = key.split(".")
        for group in groups:
            node = node.setdefault(group, {})  # type: ignore[assignment]
        node[name] = value
    return settings


@pytest.mark.parametrize(("pairs", "machine"), list(itertools.product(PAIRS, (LAPTOP, SERVER))))
def test_the_sizes_are_a_config(pairs: int, machine: TrainingMachine) -> None:
    sizes = choose_sizes(TextFacts(pairs, 12.0, 90), machine)
    config = build(tree(dict(sizes.as_dict())), "sizes")
    assert config.schedule.warmup < config.train.steps
    assert (config.train.evaluate_every or 0) <= config.train.steps
    assert 0 < sizes.minutes[0] < sizes.minutes[1]
    assert all(size.reason for size in sizes.settings if size.key in ("train.steps", "data.vocabulary.size"))


def test_the_sizes_for_multi30k_are_those_that_were_measured() -> None:
    sizes = choose_sizes(TextFacts(29_000, 12.0, 100), LAPTOP).as_dict()
    expected = {
        "data.vocabulary.size": 4000,
        "batch.words": 4096,
        "model.encoder_layers": 3,
        "model.width": 256,
        "model.feed_forward": 512,
        "model.dropout": 0.2,
        "train.steps": 1800,
        "schedule.peak": 1.5e-3,
        "schedule.warmup": 300,
    }
    assert expected.items() <= sizes.items()


def test_millions_of_pairs_get_transformer_base_on_gpus_and_a_small_model_on_a_laptop() -> None:
    text = TextFacts(4_500_000, 25.0, 3000)
    sizes = choose_sizes(text, SERVER).as_dict()
    assert (sizes["model.encoder_layers"], sizes["model.width"], sizes["model.feed_forward"]) == (6, 512, 2048)
    assert sizes["data.vocabulary.size"] == 32_000
    small = choose_sizes(text, LAPTOP)
    assert small.as_dict()["model.width"] == 256
    assert small.minutes[0] < 180 < small.minutes[1]


@pytest.mark.parametrize("largest", [270, 300, 411, 900, 1500])
def test_the_vocabulary_fits_a_text_with_few_words(largest: int) -> None:
    text = TextFacts(200, 8.0, 8, 8, largest)
    assert 261 <= int(str(choose_sizes(text, LAPTOP).as_dict()["data.vocabulary.size"])) <= largest


def test_the_vocabulary_has_room_for_many_characters_or_leaves_rare_ones_to_bytes() -> None:
    few = choose_sizes(TextFacts(500, 8.0, 400, 300, 700), LAPTOP).as_dict()
    assert few["data.vocabulary.size"] == 661
    many = choose_sizes(TextFacts(3_000, 12.0, 4000, 2500), LAPTOP).as_dict()
    assert many["data.vocabulary.size"] == 3011
    assert many["data.vocabulary.coverage"] == 0.9995


def test_little_memory_means_micro_batches() -> None:
    assert "batch.micro_words" not in choose_sizes(TextFacts(3000, 9.0, 80), LAPTOP).as_dict()
    assert choose_sizes(TextFacts(3000, 9.0, 80), TrainingMachine(2, 4.0)).as_dict()["batch.micro_words"] == 1024


@pytest.mark.parametrize(("mean_pieces", "kept"), [(9.0, 2900), (24.0, 2900), (24.0, 2000)])
def test_the_steps_give_the_passes_that_are_written(mean_pieces: float, kept: int) -> None:
    text = TextFacts(3000, 9.0, 80, trained_pairs=kept, mean_pieces=mean_pieces)
    sizes = choose_sizes(text, LAPTOP)
    steps, words = (float(str(sizes.as_dict()[key])) for key in ("train.steps", "batch.words"))
    passes = steps * words / (kept * (mean_pieces + 1))
    reason = next(size.reason for size in sizes.settings if size.key == "train.steps")
    assert reason == f"about {passes:.0f} passes through the text"
    assert passes == pytest.approx(30, rel=0.05)


def test_the_passes_of_a_text_are_those_of_its_corpus(tmp_path: Path) -> None:
    pairs = list(islice(generate_pairs(1, "train"), 400))
    (tmp_path / "t.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in [*pairs, *pairs[:100]]))
    tree = {"languages": ["en", "de"], "folder": str(tmp_path), "train": ["t"], "corpus": str(tmp_path / "corpus")}
    sizes = fit_sizes(build({"data": tree}, "test").data).sizes.as_dict()
    data = build({"data": {**tree, "vocabulary": {"size": sizes["data.vocabulary.size"]}}}, "test").data
    words = prepare(data).facts["sets"]["train"]["target_words"]
    passes = float(str(sizes["train.steps"])) * float(str(sizes["batch.words"])) / words
    reason = next(size.reason for size in fit_sizes(data).sizes.settings if size.key == "train.steps")
    assert passes == pytest.approx(float(reason.split()[1]), rel=0.1)
