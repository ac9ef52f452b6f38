"""Runs that leave something out measure time, and nothing that they train can be taken for a result."""

from pathlib import Path

import pytest

from conftest import Tiny, lockstep, steps
from lockstep.run.journal import read


def test_without_communication_workers_of_their_own_pace_come_to_the_end(tiny: Tiny, tmp_path: Path) -> None:
    """With steps on the way after which worker 0 would look at the model."""
    apart = ("strategy.name=server", "strategy.mode=async", "--workers", 2, "--servers", 1, "--run", tmp_path)
    settings = ("train.checkpoint_every=3", "train.evaluate_every=5")
    lockstep("train", tiny.config, *settings, *apart, LOCKSTEP_WITHOUT="communication")
    lines = steps(tmp_path, 0) + steps(tmp_path, 1)
    assert {line["step"] for line in lines} == set(range(1, 9))
    assert all(line["bytes_sent"] == 0 for line in lines)


def test_a_trial_may_have_less_room_than_a_sentence_needs(tiny: Tiny, tmp_path: Path) -> None:
    """One worker's share of a step is such a trial."""
    train = ("train", tiny.config, "batch.words=9", "train.steps=3", "--run", tmp_path)
    assert "smaller than the longest training sentence" in lockstep(*train, code=2).stderr
    lockstep(*train, LOCKSTEP_WITHOUT="nothing")
    assert len(steps(tmp_path)) == 3


@pytest.mark.parametrize("strategy", ["allreduce", pytest.param("sharded", marks=pytest.mark.slow)])
def test_without_communication_nothing_is_sent_and_nothing_is_saved(tiny: Tiny, tmp_path: Path, strategy: str) -> None:
    train = ("train", tiny.config, f"strategy.name={strategy}", "--workers", 2, "--run", tmp_path)
    lockstep(*train, LOCKSTEP_WITHOUT="communication")
    journal = read(tmp_path / "journal")
    assert journal.of("run")[0]["without"] == ["communication"]
    assert not journal.of("evaluation")
    assert not list((tmp_path / "checkpoints").glob("step-*"))
    mine, others = steps(tmp_path, 0), steps(tmp_path, 1)
    assert len(mine) == len(others) == 8
    assert all(line["bytes_sent"] == 0 for line in mine)
    assert any(a["grad_norm"] != b["grad_norm"] for a, b in zip(mine, others, strict=True))

    lockstep(*train)  # an ordinary launch starts from the beginning
    assert read(tmp_path / "journal").of("run")[-1]["without"] == []
    assert all(line["bytes_sent"] > 0 for line in steps(tmp_path))
    refused = lockstep(*train, "train.steps=12", LOCKSTEP_WITHOUT="communication", code=2)
    assert "has a checkpoint" in refused.stderr
    assert steps(tmp_path)[-1]["step"] == 8


def test_an_unknown_name_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    refused = lockstep("train", tiny.config, "--run", tmp_path, LOCKSTEP_WITHOUT="gravity", code=2)
    assert "gravity" in refused.stderr
    assert "communication" in refused.stderr
