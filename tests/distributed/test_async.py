"""Servers that every worker updates by itself: each share once, nobody waits for anybody, and a dead worker is no end."""

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conftest import LSTM, Tiny, command, lockstep, manifest, running, steps
from lockstep.run.journal import read

ASYNC = ("strategy.name=server", "strategy.mode=async")


def everybody(run: Path, workers: int) -> list[dict[str, Any]]:
    """The shares that all workers computed, in order."""
    lines = (line for rank in range(workers) for line in steps(run, rank))
    return sorted(lines, key=lambda line: (line["step"], line.get("part", 0)))


def shares(steps: int, workers: int) -> list[tuple[int, int]]:
    return [(step, part) for step in range(1, steps + 1) for part in range(workers)]


def found(lines: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(line["step"], line["part"]) for line in lines]


@pytest.fixture(scope="module")
def straight(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The batches of a single process."""
    run = tmp_path_factory.mktemp("straight")
    lockstep("train", tiny.config, "train.steps=24", "--run", run)
    return [line["batch"] for line in steps(run)]


@pytest.mark.parametrize("servers", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_every_share_is_used_once_by_whoever_is_free(
    tiny: Tiny, tmp_path: Path, straight: list[str], servers: int
) -> None:
    settings = ("train.steps=24", "train.evaluate_every=8", "train.checkpoint_every=10", *ASYNC)
    slow = "slow:phase=backward:rank=0:times=20"
    lockstep("train", tiny.config, *settings, "--servers", servers, "--workers", 2, "--run", tmp_path, fault=slow)
    lines = everybody(tmp_path, 2)
    assert found(lines) == shares(24, 2)
    assert [line["batch"] for line in lines] == [batch for batch in straight for _ in range(2)]
    assert all(line["scope"] == "worker" and line["staleness"] >= 0 for line in lines)
    assert len(steps(tmp_path, 1)) > len(steps(tmp_path, 0)) > 0, "the slow worker should have done less"
    assert [line["step"] for line in read(tmp_path / "journal").of("evaluation")] == [8, 16, 24]
    assert manifest(tmp_path, 24)["progress"]["scalars"]["optimizer.step"] == 48


def test_rows_of_tables_are_enough(tiny: Tiny, tmp_path: Path) -> None:
    settings = ("train.steps=24", "train.evaluate_every=8", *ASYNC, "strategy.embeddings=rows", *LSTM)
    lockstep("train", tiny.config, *settings, "--servers", 1, "--workers", 2, "--run", tmp_path)
    lines = everybody(tmp_path, 2)
    assert found(lines) == shares(24, 2)
    first, last = (sum(line["loss"] for line in some) for some in (lines[:8], lines[-8:]))
    assert last < first, "it learns"
    assert [line["step"] for line in read(tmp_path / "journal").of("evaluation")] == [8, 16, 24]


def test_staleness_stays_within_its_bound(tiny: Tiny, tmp_path: Path) -> None:
    settings = ("train.steps=24", *ASYNC, "strategy.staleness=2", "--workers", 3, "--servers", 1)
    lockstep("train", tiny.config, *settings, "--run", tmp_path, fault="slow:phase=backward:rank=2:times=8")
    lines = everybody(tmp_path, 3)
    assert found(lines) == shares(24, 3)
    assert max(line["staleness"] for line in lines) == 2, "the bound must have been reached, or it was never needed"


def test_a_bound_that_cannot_be_kept_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    refused = lockstep("train", tiny.config, *ASYNC, "strategy.staleness=1", "--workers", 3, "--run", tmp_path, code=2)
    assert "at least 2" in refused.stderr


def test_a_signal_lets_all_finish_what_they_began_and_saves(tiny: Tiny, tmp_path: Path) -> None:
    with running(tiny, tmp_path, *ASYNC, "--servers", "1", workers=2) as process:
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 143, error
    assert "Traceback" not in error
    last = everybody(tmp_path, 2)[-1]["step"]
    assert found(everybody(tmp_path, 2)) == shares(last, 2), "a step was left half done"
    assert manifest(tmp_path, last)["progress"]["step"] == last
    more = ("train", tiny.config, *ASYNC, "--servers", 1, f"train.steps={last + 4}", "--workers", 2)
    assert f"Continuing from step {last}" in lockstep(*more, "--run", tmp_path).stderr
    assert found(everybody(tmp_path, 2)) == shares(last + 4, 2)


@pytest.mark.slow
def test_the_step_numbers_of_the_workers_can_be_followed_until_the_run_ends(tiny: Tiny, tmp_path: Path) -> None:
    with running(tiny, tmp_path, *ASYNC, "--servers", "1", workers=2) as process:
        words = command("runs", "follow", tmp_path, "--every", 0.1)
        with subprocess.Popen([*words, "--json"], stdout=subprocess.PIPE, text=True) as follower:
            assert follower.stdout is not None
            seen = [json.loads(follower.stdout.readline()) for _ in range(3)]
            process.send_signal(signal.SIGTERM)
            seen += [json.loads(line) for line in follower.stdout]
        assert follower.returncode == 0
    assert [look["state"] for look in seen] == ["running"] * (len(seen) - 1) + ["ended"]
    ends = [steps(tmp_path, rank)[-1]["step"] for rank in (0, 1)]
    for rank, end in enumerate(ends):
        mine = [look["workers"][rank] for look in seen if look["workers"][rank]["step"] is not None]
        assert [one["step"] for one in mine] == sorted(one["step"] for one in mine)
        assert mine[-1]["step"] <= end
        assert mine[-1]["staleness"] is not None
    assert seen[-1]["workers"][0]["said"].startswith("stopped")
    shown = lockstep("runs", "follow", tmp_path, "--once").stdout
    assert f"worker 0: step {ends[0]:,} (stopped: signal)   worker 1: step {ends[1]:,} (stopped: " in shown
    assert "is not trained on this machine" in lockstep("runs", "follow", "s3://bucket/run", code=2).stderr
    assert "is not a run" in lockstep("runs", "follow", tmp_path / "journal", code=2).stderr


@pytest.mark.slow
def test_a_score_that_is_made_up_after_a_kill_is_that_of_the_saved_model(tiny: Tiny, tmp_path: Path) -> None:
    run, before = tmp_path / "run", tmp_path / "before"
    settings = ("train.steps=12", "train.evaluate_every=4", "train.checkpoint_every=4", "train.save=wait", *ASYNC)
    train = ("train", tiny.config, *settings, "--workers", 2, "--run", run)
    lockstep(*train, fault="kill:phase=evaluate:rank=0", code=1)
    assert manifest(run, 4)["progress"]["score"] is None
    shutil.copytree(run, before)
    lockstep(*train)
    saved = lockstep("evaluate", before, "--checkpoint", "last", "--set", "validation", "--json")
    (made_up,) = [line for line in read(run / "journal").of("evaluation") if line["step"] == 4]
    assert made_up["scores"]["loss"] == pytest.approx(json.loads(saved.stdout)["loss"], rel=1e-5)
    assert made_up["scores"]["sacrebleu"] == pytest.approx(json.loads(saved.stdout)["sacrebleu"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("servers", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_patience_that_runs_out_in_an_evaluation_made_up_for_ends_the_run(
    tiny: Tiny, tmp_path: Path, servers: int
) -> None:
    still = ("schedule.peak=1e-30", "train.patience=1")  # nothing is learned, so no score is better than the first
    settings = ("train.evaluate_every=4", "train.checkpoint_every=4", *still, *ASYNC, "--servers", servers)
    train = ("train", tiny.config, *settings, "--workers", 2, "--run", tmp_path)
    lockstep(*train, "train.steps=4")
    lockstep(*train, "train.steps=10000", fault="kill:phase=evaluate:rank=0", code=1)
    lockstep(*train, "train.steps=10000")
    assert read(tmp_path / "journal").of("stop")[-1]["reason"] == "patience"
    last = everybody(tmp_path, 2)[-1]["step"]
    assert manifest(tmp_path, last)["progress"]["evaluations_without_gain"] >= 1


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_a_killed_server_ends_the_run_in_one_sentence_and_it_continues_from_the_checkpoint(
    tiny: Tiny, tmp_path: Path, mode: str
) -> None:
    on_disk = "train.save=wait"  # step 10, when the server dies
    settings = ("strategy.name=server", f"strategy.mode={mode}", "train.steps=16", "train.checkpoint_every=5", on_disk)
    train = ("train", tiny.config, *settings, "--servers", 2, "--workers", 2, "--run", tmp_path)
    dead = lockstep(*train, fault="kill:phase=serve:step=12:rank=3", code=1)
    assert "Server 1 (process " in dead.stderr
    assert "was killed by SIGKILL" in dead.stderr
    assert "Traceback" not in dead.stderr
    assert "Continuing from step 10" in lockstep(*train).stderr
    assert {line["step"] for line in everybody(tmp_path, 2)} == set(range(1, 17))


def test_a_worker_that_dies_does_not_stop_the_others_and_its_share_is_computed_again(
    tiny: Tiny, tmp_path: Path, straight: list[str]
) -> None:
    settings = ("train.steps=24", "train.evaluate_every=12", *ASYNC)
    train = ("train", tiny.config, *settings, "--servers", 1, "--workers", 3, "--run", tmp_path)
    done = lockstep(*train, fault="kill:phase=backward:rank=2")
    assert "Worker 2 (process " in done.stderr
    assert "was killed by SIGKILL" in done.stderr
    lines = everybody(tmp_path, 2)
    assert found(lines) == shares(24, 3)
    assert [line["batch"] for line in lines] == [batch for batch in straight for _ in range(3)]
    lost = [line["step"] for line in read(tmp_path / "journal").of("fault")]
    assert lost, "the dead worker had claimed a step"
    assert set(lost) <= {line["step"] for line in steps(tmp_path, 0)}
