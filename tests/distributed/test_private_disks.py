"""Hosts that do not share the run folder: it is on the first one, and everything else is as if they shared it."""

import re
from pathlib import Path

import pytest

from conftest import Tiny, emulated_network, lockstep, steps, weights
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.run.journal import read
from private_disks import PrivateDisks

SETTINGS = ("train.steps=16", "train.checkpoint_every=4", "train.evaluate_every=null")


@pytest.fixture
def disks(tiny: Tiny, tmp_path: Path) -> PrivateDisks:
    return PrivateDisks(tiny, tmp_path)


@emulated_network
@pytest.mark.parametrize(
    "strategy",
    ["sharded", pytest.param("allreduce", marks=pytest.mark.slow), pytest.param("server", marks=pytest.mark.slow)],
)
def test_killed_and_started_again_it_ends_in_the_bits_of_a_shared_folder(
    disks: PrivateDisks, tiny: Tiny, tmp_path: Path, strategy: str
) -> None:
    words = disks.make_words(*SETTINGS, f"strategy.name={strategy}")
    with EmulatedNetwork(2) as network:
        disks.train(network, words, code=None, fault="kill:phase=forward:step=15:rank=1")
        said = disks.train(network, words)
    assert re.search("Continuing from step (8|12)", said[0])  # a save is complete when the next one begins
    assert "h2 does not share" in said[0]
    lockstep("checkpoint", "verify", disks.run())
    whole = tmp_path / "whole"
    lockstep("train", tiny.config, *SETTINGS, f"strategy.name={strategy}", "--workers", 2, "--run", whole)
    assert weights(disks.run(), 16) == weights(whole, 16)
    for rank in (0, 1):
        lines, others = steps(disks.run(), rank), steps(whole, rank)
        assert [line["loss"] for line in lines] == [line["loss"] for line in others]
        assert [line["attempt"] for line in read(disks.run() / "journal", rank).of("run")] == [1, 2]
        assert read(disks.run() / "journal", rank).damaged == 0
    assert not (disks.run(2) / "checkpoints").exists()
