"""Slurm itself runs what `lockstep launch --on slurm` submits."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Tiny, command, emulated_network, lockstep, steps
from lockstep.files import write_json
from lockstep.run.journal import read
from slurm_cluster import SlurmCluster, needs_slurm, start_slurm, wait_until

pytestmark = [emulated_network, needs_slurm, pytest.mark.slow]
SETTINGS = ("model.dropout=0", "train.evaluate_every=null", "train.checkpoint_every=1000")
SOON = "StartTime=now+2"
"""Slurm lets a job that was queued again wait for minutes. Within a second its old permission would end the new start."""
SLOW = "LOCKSTEP_FAULT=slow:phase=backward:ms=100"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with start_slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


def launch(cluster: SlurmCluster, tiny: Tiny, run: Path, count: int) -> str:
    """Submits a slow training as the job `NAME` of the folder's name, and waits for its first steps. Returns its number."""
    words = command("launch", tiny.config, f"train.steps={count}", *SETTINGS, "--on", "slurm", "--nodes", 2)
    launched = cluster.run("env", SLOW, *words, "--run", run, "--name", run.name, "--json")
    wait_until(lambda: (run / "journal").exists() and len(steps(run)) > 5, "the job trains")
    return str(json.loads(launched)["id"])


def read_state(cluster: SlurmCluster, name: str) -> str:
    return str(json.loads(cluster.lockstep("jobs", "status", name, "--json"))["state"])


def test_a_preempted_job_saves_waits_and_continues(cluster: SlurmCluster, tiny: Tiny, tmp_path: Path) -> None:
    run, whole = tmp_path / "first", tmp_path / "whole"
    number = launch(cluster, tiny, run, 60)
    assert read_state(cluster, "first") == "running"
    cluster.run("sbatch", "--partition=high", "--nodes=2", "--wrap=true", "--output=/dev/null")
    wait_until(lambda: "Restarts=1" in cluster.run("scontrol", "show", "job", number), "it was queued again")
    assert read_state(cluster, "first") == "waiting"
    cluster.run("scontrol", "update", f"JobId={number}", SOON)
    wait_until(lambda: read_state(cluster, "first") == "finished", "it has finished")
    assert [launch["workers"] for launch in read(run / "journal").of("run")] == [2, 2]
    assert [stop["signal"] for stop in read(run / "journal").of("stop")] == ["SIGTERM", None]
    assert "Started by Slurm" in cluster.lockstep("jobs", "logs", "first")
    lockstep("runs", "audit", run)
    lockstep("train", tiny.config, "train.steps=60", *SETTINGS, "--workers", 2, "--run", whole)
    for one, other in zip(steps(run), steps(whole), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    record = cluster.folder / "record" / "jobs" / "first.json"
    write_json(record, json.loads(record.read_text()) | {"id": "999999"})
    assert read_state(cluster, "first") == "finished", "by its journal, because Slurm knows no such job"


def test_near_the_time_limit_a_job_saves_and_waits(cluster: SlurmCluster, tiny: Tiny, tmp_path: Path) -> None:
    run = tmp_path / "second"
    number = launch(cluster, tiny, run, 100_000)
    cluster.run("scancel", "--batch", "--signal=USR1", number)  # as Slurm does near the limit
    wait_until(lambda: "Restarts=1" in cluster.run("scontrol", "show", "job", number), "it was queued again")
    assert [stop["signal"] for stop in read(run / "journal").of("stop")] == ["SIGTERM"]
    cluster.run("scontrol", "update", f"JobId={number}", SOON)
    wait_until(lambda: len(read(run / "journal").of("run")) == 2, "it trains again")
    cluster.lockstep("jobs", "cancel", "second")
    wait_until(lambda: read_state(cluster, "second") == "cancelled", "it has ended")
    table = cluster.lockstep("jobs", "list")
    assert re.search(r"second\s+slurm\s+cancelled", table)


def test_slurm_refuses_before_anything_is_submitted(cluster: SlurmCluster, tiny: Tiny, tmp_path: Path) -> None:
    words = command("launch", tiny.config, "--on", "slurm", "--with", "partition=nowhere", "--run", tmp_path / "run")
    said = cluster.run("bash", "-c", 'exec 2>&1; "$@"; test $? = 1', "bash", *words, "--name", "third")
    assert "invalid partition" in said
    assert "Traceback" not in said
    assert not (cluster.folder / "record" / "jobs" / "third.json").exists()
