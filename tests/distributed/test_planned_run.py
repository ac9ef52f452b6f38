"""A profile of a real training, a plan from it, and a real run that it is held against."""

import json
from pathlib import Path

import pytest

from conftest import Tiny, emulated_network, lockstep
from lockstep.lab.plan.profile import load_profile
from lockstep.lab.plan.sweep import measure_link
from lockstep.run.journal import read


def test_a_profile_records_when_every_gradient_is_ready_and_scores_a_run(tiny: Tiny, tmp_path: Path) -> None:
    saved, run = tmp_path / "profile.json", tmp_path / "run"
    words = ("batch.per=worker", "--links", "none", "--workers", "1,2", "--strategies", "allreduce,replicas")
    lockstep("plan", tiny.config, *words, "--save-profile", saved, "--json")
    profile = load_profile(saved)
    assert sum(tensor.values for tensor in profile.tensors) == profile.parameters
    ready = {tensor.name: tensor.ready for tensor in profile.tensors}
    assert max(ready, key=lambda name: ready[name]) == "model.embedding.weight", "shared by source, target and output"
    assert ready["model.decoder.0.feed_forward.sub_layer.outer.weight"] < ready["model.encoder.0.attention.norm.weight"]
    assert profile.points[0].backward > 0
    assert profile.flops_per_word

    lockstep("train", tiny.config, "batch.per=worker", "train.steps=12", "--workers", 2, "--run", run)
    assert not read(run / "journal").of("profile"), "only LOCKSTEP_PROFILE=1 writes one"
    output = lockstep("plan", tiny.config, *words, "--profile", saved, "--score", run, "--json").stdout
    (score,) = json.loads(output)["scores"]
    assert (score["name"], score["workers"]) == ("allreduce fp32", 2)
    assert score["measured"] > 0


@pytest.mark.slow
def test_a_profile_of_images_knows_the_sums_of_batch_norm(tiny_images: Tiny, tmp_path: Path) -> None:
    saved, words = tmp_path / "profile.json", ("--links", "1gbit", "--workers", "1,2", "--strategies", "allreduce")
    lockstep("plan", tiny_images.config, *words, "--save-profile", saved)
    channels = (4, 4, 4, 8, 8, 16, 16)  # of a network of depth 8
    assert load_profile(saved).sums == tuple(size * count for count in channels for size in (24, 16))
    assert load_profile(saved).unit == "images"


@pytest.mark.slow
@emulated_network
def test_a_sweep_finds_the_rate_of_an_emulated_link() -> None:
    link = measure_link("50mbit")
    assert 0.8 * 50e6 / 8 < link.bytes_per_second < 1.05 * 50e6 / 8
    assert link.host_seconds_per_byte > 0
