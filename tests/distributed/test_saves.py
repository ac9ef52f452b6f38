"""Saving in the background: the same checkpoints, the same decisions on all workers, and nobody waits in the dark."""

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Tiny, lockstep, manifest, steps, weights
from lockstep.run.journal import read


def of(run: Path, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    """The lines of a kind in a worker's journal."""
    return read(run / "journal", rank).of(kind)


@pytest.mark.slow
def test_both_ways_of_saving_save_the_same(tiny: Tiny, tmp_path: Path) -> None:
    settings = ("train.steps=7", "train.checkpoint_every=3", "train.evaluate_every=6", "--workers", 2)
    for save in ("background", "wait"):
        lockstep("train", tiny.config, *settings, f"train.save={save}", "--run", tmp_path / save)
    assert weights(tmp_path / "background", 7) == weights(tmp_path / "wait", 7)
    for rank in (0, 1):
        lines = {save: of(tmp_path / save, "checkpoint", rank) for save in ("background", "wait")}
        assert [line["step"] for line in lines["background"]] == [line["step"] for line in lines["wait"]] == [3, 6, 7]
        assert [bool(line["background_seconds"]) for line in lines["background"]] == [True, True, False]
        assert not any(line["background_seconds"] for line in lines["wait"])
    for step in (6, 7):  # the score is added when the checkpoint is complete
        one, other = (manifest(tmp_path / save, step)["progress"] for save in ("background", "wait"))
        assert one == other
        assert one["score"] is not None


@pytest.mark.slow
def test_an_automatic_interval_is_the_same_for_all_workers_and_after_a_resume(tiny: Tiny, tmp_path: Path) -> None:
    auto = ("train.checkpoint_every=auto", "train.failure_hours=0.001", "train.evaluate_every=null")
    settings = (*auto, "--workers", 2, "--run", tmp_path)
    lockstep("train", tiny.config, "train.steps=230", *settings)
    saves = [[line["step"] for line in of(tmp_path, "checkpoint", rank)] for rank in (0, 1)]
    assert saves[0] == saves[1]
    assert saves[0][0] == 100
    chosen = {line["step"]: line["every"] for line in of(tmp_path, "interval")}
    assert chosen
    every = manifest(tmp_path, 230)["progress"]["save_every"]
    assert every == chosen[230]
    report = (tmp_path / "report.md").read_text()
    assert f"train.checkpoint_every=auto saves every {every:,} steps" in report
    lockstep("train", tiny.config, f"train.steps={230 + every + 1}", *settings)
    assert 230 + every in [line["step"] for line in of(tmp_path, "checkpoint")]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_time_limit_saves_stops_and_says_so(tiny: Tiny, tmp_path: Path, workers: int) -> None:
    train = ("train", tiny.config, "--workers", workers, "--run", tmp_path)
    stopped = lockstep(*train, "train.steps=100000", "train.max_hours=0.002", code=75)
    reached = steps(tmp_path)[-1]["step"]
    assert f"Stopped at step {reached:,} and saved: train.max_hours is nearly over" in stopped.stderr
    assert [line["reason"] for line in of(tmp_path, "stop")] == ["max_hours"]
    assert manifest(tmp_path, reached)["progress"]["step"] == reached
    summary = json.loads(lockstep(*train, f"train.steps={reached + 2}", "--json").stdout)
    assert (summary["state"], summary["step"]) == ("finished", reached + 2)


def test_asynchronous_workers_need_a_number(tiny: Tiny, tmp_path: Path) -> None:
    words = ("strategy.name=server", "strategy.mode=async", "train.checkpoint_every=auto", "--run", tmp_path)
    assert "set a number" in lockstep("train", tiny.config, *words, code=2).stderr
