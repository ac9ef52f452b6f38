"""Real studies: known causes of lost speed-up are named, and an interrupted study leaves nothing behind and continues."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from conftest import LSTM, Tiny, command, emulated_network, lockstep

SLOW_WORKER = "slow:phase=backward:rank=1:ms=200"
SLOW_INPUT = "slow:phase=input:rank=1:ms=300"
CELLS = 6  # of one strategy and two workers


def make_command(config: Path, folder: Path) -> tuple[object, ...]:
    return ("study", config, "--steps", 6, "--rounds", 1, "--out", folder)


def count_stored(folder: Path) -> int:
    path = folder / "study.json"
    return len(json.loads(path.read_text())["trials"]) if path.exists() else 0


@contextmanager
def start_study(tiny: Tiny, folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A study in the middle of a trial, and the processes of that trial."""
    environment = os.environ | {"LOCKSTEP_FAULT": SLOW_WORKER}
    before, process = (
        count_stored(folder),
        subprocess.Popen(
            command(*make_command(tiny.config, folder)), env=environment, stderr=subprocess.PIPE, text=True
        ),
    )
    try:
        children: list[psutil.Process] = []
        deadline = time.monotonic() + 180
        while not (
            count_stored(folder) > before and len(children := psutil.Process(process.pid).children(recursive=True)) > 2
        ):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process, children
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_an_interrupted_study_leaves_nothing_behind_and_continues(tiny: Tiny, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    with start_study(tiny, folder) as (process, workers):
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
        assert process.returncode == 130
        assert "the same command continues" in errors
        assert psutil.wait_procs(workers, timeout=30)[1] == []
        assert sorted(path.name for path in folder.iterdir()) == [".lock", "study.json"]
    had = count_stored(folder)
    with start_study(tiny, folder) as (process, workers):
        process.kill()
        process.wait()
        assert psutil.wait_procs(workers, timeout=30)[1] == [], "trials die with their study"
    assert had < count_stored(folder) < CELLS

    refused = lockstep(*make_command(tiny.config, folder), "batch.words=160", code=2, fault=SLOW_WORKER)
    assert "begun with other settings: matrix.batches was [150] and is now [160]" in refused.stderr
    again = lockstep(*make_command(tiny.config, folder), "--json", fault=SLOW_WORKER)
    facts = json.loads(again.stdout)
    assert again.stderr.count("trial ") == CELLS - had - 1
    assert facts["cause"] == "imbalance"
    losses = {row["cell"]["strategy"]: row["loss"] for row in facts["rows"] if row["loss"]}
    assert set(losses) == {"replicas", "allreduce"}
    loss = losses["allreduce"]
    assert sum(loss["shares"].values()) + loss["not_explained"] == pytest.approx(loss["lost"])
    assert abs(loss["not_explained"]) < 0.5 * loss["lost"]
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "study.html", "study.json", "study.md"]
    assert "words/s" in lockstep(*make_command(tiny.config, folder), fault=SLOW_WORKER).stdout, (
        "and now there is nothing to do"
    )

    side_by_side = json.loads(lockstep("study", "compare", folder, folder / "study.json", "--json").stdout)
    assert side_by_side["settings"] == {}
    assert [pair["ratio"] for pair in side_by_side["pairs"]] == [1.0] * CELLS
    assert "The settings are the same" in lockstep("study", "compare", folder, folder).stdout


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--strategies", "allreduse"), "allreduse"),
        (("--strategies", "allreduce:gradient=bf16"), "did you mean strategy.gradients?"),
        (("--strategies", "allreduce,,sharded"), "--strategies"),
        (("--workers", "1,x"), "--workers"),
        (("--workers", "0"), "--workers"),
        (("--batch", "-3"), "--batch"),
        (("--links", "quick"), "quick"),
        (("--strategies", "local:every=4"), "multiple"),
        (("train.step=3",), "train.step"),
        (("--fixed-length", "100000"), "too short"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(
    tiny: Tiny, tmp_path: Path, wrong: tuple[str, ...], message: str
) -> None:
    refused = lockstep(*make_command(tiny.config, tmp_path / "study"), *wrong, code=None)
    assert refused.returncode in (1, 2)
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "study" / "trials").exists()


def run_study(config: Path, folder: Path, *more: object, fault: str = "") -> dict[str, Any]:
    out = lockstep("study", config, *more, "--out", folder, "--json", fault=fault).stdout
    return dict(json.loads(out))


@pytest.mark.slow
def test_slow_input_is_attributed_to_input(tiny: Tiny, tmp_path: Path) -> None:
    results = run_study(tiny.config, tmp_path, "--steps", 10, "--rounds", 1, fault=SLOW_INPUT)
    assert results["cause"] == "input"
    assert (
        next(row for row in results["rows"] if row["cell"]["without"] == "input" and row["cell"]["workers"] == 2)[
            "words_per_second"
        ]
        > 2 * next(row for row in results["rows"] if row["cell"]["strategy"] == "allreduce")["words_per_second"]
    )


@pytest.mark.slow
def test_oversubscribed_threads_are_contention(tiny: Tiny, tmp_path: Path) -> None:
    """One worker alone uses all cores, and so does each of two workers."""
    cores = str(len(os.sched_getaffinity(0)))
    large = ("model.width=256", "model.feed_forward=1024", "batch.words=1000")
    results = run_study(tiny.config, tmp_path, *large, "--threads", cores, "--steps", 10, "--rounds", 1)
    assert results["cause"] == "contention"
    assert any("oversubscribed" in note for note in results["notes"])


@pytest.mark.slow
def test_unbalanced_batches_are_imbalance(tiny: Tiny, tmp_path: Path) -> None:
    """A step is all there is, in the order of its lengths: worker 0 gets the short half, worker 1 the long one."""
    by_count = ("batch.words=null", "batch.sentences=150", "batch.balance=false", "batch.bucket=true")
    results = run_study(
        tiny.config, tmp_path, "model.width=256", "model.feed_forward=1024", *by_count, "--steps", 10, "--rounds", 1
    )
    assert results["cause"] == "imbalance"


@pytest.mark.slow
def test_every_strategy_has_its_row(tiny: Tiny, tmp_path: Path) -> None:
    strategies = "allreduce:gradients=bf16,sharded,server,server:servers=1,server:mode=async,local:every=5"
    options = ("--strategies", strategies, "--steps", 20, "--rounds", 1, "--no-shuffle", "--fixed-length", 8)
    results = run_study(tiny.config, tmp_path, *LSTM, *options)
    rows = {row["cell"]["strategy"]: row for row in results["rows"] if row["loss"]}
    assert set(rows) == {"replicas", *strategies.split(",")}
    for row in rows.values():
        loss = row["loss"]
        assert sum(loss["shares"].values()) + loss["not_explained"] == pytest.approx(loss["lost"])
        assert 144 <= row["words_per_step"] <= 152, (
            "37 sentences of 8 words fit into 300: 18 for one worker, 19 for the other"
        )
    assert sum(row["cell"]["workers"] == 1 for row in results["rows"]) == 2


@pytest.mark.slow
def test_images_are_counted_as_images(tiny_images: Tiny, tmp_path: Path) -> None:
    results = run_study(tiny_images.config, tmp_path, "--steps", 6, "--rounds", 1, "--batch", 5)
    assert results["unit"] == "images"
    assert {row["words_per_step"] for row in results["rows"]} == {5.0}
    refused = lockstep("study", tiny_images.config, "--fixed-length", 9, "--out", tmp_path / "more", code=None)
    assert "have no length" in refused.stderr


def list_hosts(study: int) -> list[Path]:
    return list(Path("/var/run/netns").glob(f"lockstep-{study}-*"))


@pytest.mark.slow
@emulated_network
def test_a_study_of_a_slow_link_continues_after_kill_9_and_names_communication(tiny: Tiny, tmp_path: Path) -> None:
    """The first study dies in the middle of a trial on emulated hosts; the next one removes them and continues."""

    asked = (tiny.config, "--steps", 6, "--rounds", 1, "--links", "1mbit", "--out", tmp_path / "study")
    with subprocess.Popen(command("study", *asked), stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 180
        while not (list_hosts(process.pid) and len(psutil.Process(process.pid).children(recursive=True)) > 2):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        trial = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    assert psutil.wait_procs(trial, timeout=30)[1] == [], "trials die with their study"
    assert list_hosts(process.pid), "namespaces are not processes and outlive the study"

    results = json.loads(lockstep("study", *asked, "--json").stdout)
    assert results["cause"] == "communication"
    assert not list_hosts(process.pid)
    assert sorted(path.name for path in (tmp_path / "study").iterdir()) == [
        ".lock",
        "study.html",
        "study.json",
        "study.md",
    ]
