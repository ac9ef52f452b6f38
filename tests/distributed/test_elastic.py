"""An elastic range of workers: those that are left continue, lost ones come back, and the order of the data stays."""

import re
from pathlib import Path

import pytest

from conftest import Tiny, lockstep, steps
from lockstep.run.journal import read

OFF = ("model.dropout=0", "train.precision=fp32", "train.evaluate_every=null")


def train(tiny: Tiny, run: Path, workers: str, *settings: str, fault: str = "") -> str:
    words = ["train", tiny.config, *OFF, *settings, "--workers", workers, "--run", run]
    return lockstep(*words, fault=fault).stderr


def follows(run: Path, uninterrupted: Path, count: int) -> None:
    """Asserts that a run computed the steps of another one, on the same data, with the same losses up to rounding."""
    for one, other in zip(steps(run), steps(uninterrupted), strict=True):
        assert (one["step"], one["cursor"], one["batch"]) == (other["step"], other["cursor"], other["batch"])
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-4)
    assert len(steps(run)) == count
    lockstep("runs", "audit", run)


def test_the_workers_that_are_left_continue_and_the_lost_one_comes_back(tiny: Tiny, tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    settings = ("train.steps=60", "train.checkpoint_every=4", "train.save=wait", "train.return_seconds=0.3")
    slow = "slow:phase=backward:ms=60"  # so that the run is not over before the lost worker comes back
    said = train(tiny, run, "1:2", *settings, fault=f"kill:phase=backward:rank=1:step=7,{slow}")
    assert re.search(
        r"Worker 1 .* was killed by SIGKILL .*\. 1 worker continues without it from the last checkpoint\.", said
    )
    assert "All 2 workers train again, from the step that was reached." in said
    launches = read(run / "journal").of("run")
    assert [launch["workers"] for launch in launches] == [2, 1, 2]
    first, back = read(run / "journal").of("resume")
    assert first["step"] == 4, "the journal shows which steps were computed again"
    assert back["step"] >= 7, "a return repeats nothing"
    train(tiny, whole, "2", *settings)
    follows(run, whole, 60)


@pytest.mark.slow
def test_four_workers_become_three_and_four_again(tiny: Tiny, tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    settings = ("train.steps=200", "train.checkpoint_every=20", "train.return_seconds=1", "train.restarts=2")
    said = train(tiny, run, "2:4", *settings, fault="kill:phase=merge:rank=3:step=47")
    assert "All start again from the last checkpoint (restart 1 of 2)." in said
    assert "3 workers continue without it" in said
    assert [launch["workers"] for launch in read(run / "journal").of("run")] == [4, 4, 3, 4]
    train(tiny, whole, "4", *settings)
    follows(run, whole, 200)


def test_a_range_is_refused_where_workers_cannot_be_lost(tiny: Tiny, tmp_path: Path) -> None:
    run = ("--run", tmp_path / "run")
    refused = lockstep("train", tiny.config, "strategy.name=local", "--workers", "1:2", *run, code=2).stderr
    assert "strategy.name=local has an own model for every worker" in refused
    for text in ("4:2", "0", "two", "1:2:3"):
        assert (
            "is neither a number nor a range" in lockstep("train", tiny.config, "--workers", text, *run, code=2).stderr
        )
