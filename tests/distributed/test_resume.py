"""Promises 3, 4 and 5: kill a run anywhere, start it again, and nothing is lost or different."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import Tiny, command, lockstep, manifest, steps, weights

STEPS = 22
SETTINGS = (
    f"train.steps={STEPS}",
    "train.checkpoint_every=3",
    "train.evaluate_every=6",
    "batch.micro_words=20",
    "train.keep_last=2",
)
# Where each launch is killed. The first comes before any checkpoint; later ones wherever a step or a save can be cut.
KILLS = (
    "phase=input:step=2",
    "phase=forward:step=4",
    "phase=micro:step=5",
    "phase=backward:step=7",
    "phase=merge:step=8",
    "phase=update:step=10",
    "phase=save:step=12",
    "phase=rename:step=15:rank=0",
    "phase=evaluate:step=18",
    "phase=renamed:step=21:rank=0",
)


@pytest.fixture(scope="module")
def uninterrupted(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    for workers in (1, 2, 3):
        lockstep("train", tiny.config, *SETTINGS, "--workers", workers, "--run", folder / str(workers))
    return {workers: folder / str(workers) for workers in (1, 2, 3)}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_ten_kills_end_in_the_same_bits(
    uninterrupted: dict[int, Path], tiny: Tiny, tmp_path: Path, workers: int
) -> None:
    train = ("train", tiny.config, *SETTINGS, "--workers", workers, "--run", tmp_path)
    for number, point in enumerate(KILLS):
        victim = "" if "rank" in point else f":rank={number % workers}"
        result = lockstep(*train, fault=f"kill:{point}{victim}", code=None)
        assert result.returncode != 0, f"nobody was killed at {point}"
        assert "Traceback" not in result.stderr
        if workers > 1:
            assert "was killed by SIGKILL" in result.stderr
    lockstep(*train)
    assert weights(tmp_path, STEPS) == weights(uninterrupted[workers], STEPS)
    expected = {line["step"]: line["batch"] for line in steps(uninterrupted[workers])}
    assert {line["step"]: line["batch"] for line in steps(tmp_path)} == expected
    assert not list((tmp_path / "checkpoints").glob(".step-*")), "something half-written was left"


def test_a_finished_run_goes_on_when_asked_for_more_steps(tiny: Tiny, tmp_path: Path) -> None:
    train = ("train", tiny.config, "--run", tmp_path)
    lockstep(*train, "train.steps=5")
    assert "finished at step 5" in lockstep(*train, "train.steps=5").stdout
    lockstep(*train, "train.steps=9")
    assert [line["step"] for line in steps(tmp_path)] == list(range(1, 10))
    assert {line["step"]: line["attempt"] for line in steps(tmp_path)}[6] == 3
    lockstep("train", tiny.config, "train.steps=9", "--run", tmp_path / "straight")
    assert weights(tmp_path, 9) == weights(tmp_path / "straight", 9)


def test_other_workers_continue_at_the_exact_next_batch(
    uninterrupted: dict[int, Path], tiny: Tiny, tmp_path: Path
) -> None:
    off = ("model.dropout=0", "batch.words=150", "train.checkpoint_every=5")
    for total, workers in ((5, 3), (10, 1), (15, 2)):
        settings = (*off, f"train.steps={total}")
        lockstep("train", tiny.config, *settings, "--workers", workers, "--run", tmp_path / "changing")
    lockstep("train", tiny.config, *off, "train.steps=15", "--run", tmp_path / "single")
    changing, single = steps(tmp_path / "changing"), steps(tmp_path / "single")
    assert [line["batch"] for line in changing] == [line["batch"] for line in single]
    assert [line["loss"] for line in changing] == pytest.approx([line["loss"] for line in single], rel=1e-4)


@contextmanager
def running(tiny: Tiny, run: Path, *settings: str, workers: int) -> Iterator[subprocess.Popen[str]]:
    """A long training in the background that has taken its first steps."""
    train = command("train", tiny.config, "train.steps=100000", *settings, "--workers", workers, "--run", run)
    process = subprocess.Popen(train, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while len(steps(run, workers - 1)) < 3:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, "no step within a minute"
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.communicate()


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def test_killing_the_launcher_leaves_no_orphan_and_no_damage(
    uninterrupted: dict[int, Path], tiny: Tiny, tmp_path: Path
) -> None:
    with running(tiny, tmp_path, *SETTINGS[1:], workers=2) as launcher:
        orphans = children(launcher.pid)
        assert len(orphans) == 2
        launcher.kill()
        launcher.wait()
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{pid}/cmdline").exists() and _alive(pid) for pid in orphans):
            assert time.monotonic() < deadline, "a worker outlived its launcher"
            time.sleep(0.05)
    reached = steps(tmp_path)[-1]["step"]
    total = f"train.steps={max(STEPS, reached + 3)}"
    lockstep("train", tiny.config, *SETTINGS[1:], total, "--workers", 2, "--run", tmp_path)
    lockstep("train", tiny.config, *SETTINGS[1:], total, "--workers", 2, "--run", tmp_path / "straight")
    last = max(STEPS, reached + 3)
    assert weights(tmp_path, last) == weights(tmp_path / "straight", last)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_stops_all_workers_at_the_same_step(
    tiny: Tiny, tmp_path: Path, workers: int, number: signal.Signals, code: int
) -> None:
    with running(tiny, tmp_path, workers=workers) as process:
        process.send_signal(number)
        _, error = process.communicate(timeout=60)
    assert process.returncode == code, error
    assert "Traceback" not in error
    assert "goes on from there" in error
    last = {steps(tmp_path, rank)[-1]["step"] for rank in range(workers)}
    assert len(last) == 1
    assert manifest(tmp_path, last.pop())["progress"]["step"] == steps(tmp_path)[-1]["step"]


def test_a_second_launch_on_the_same_run_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    with running(tiny, tmp_path, workers=1) as process:
        refused = lockstep("train", tiny.config, "train.steps=100000", "--run", tmp_path, code=1)
        assert "is being trained right now" in refused.stderr
        assert str(process.pid) in refused.stderr
        assert process.poll() is None


def test_a_gradient_that_is_not_finite_on_one_worker_is_left_out_by_all(tiny: Tiny, tmp_path: Path) -> None:
    fault = "nan:phase=gradient:rank=1:step=4"
    lockstep("train", tiny.config, "--workers", 2, "--run", tmp_path, fault=fault)
    for rank in (0, 1):
        assert [line["step"] for line in steps(tmp_path, rank) if not line["applied"]] == [4]
        assert all(line["grad_norm"] is not None for line in steps(tmp_path, rank) if line["step"] != 4)
    assert manifest(tmp_path, 8)["progress"]["skipped"] == 1


def test_many_gradients_in_a_row_that_are_not_finite_stop_the_run(tiny: Tiny, tmp_path: Path) -> None:
    settings = ("train.max_skipped=3", "train.steps=20")
    result = lockstep(
        "train", tiny.config, *settings, "--workers", 2, "--run", tmp_path, fault="nan:phase=gradient:rank=0", code=1
    )
    assert "not finite" in result.stderr
    assert "Traceback" not in result.stderr
    assert steps(tmp_path)[-1]["step"] == 3


def test_the_fp16_loss_scale_is_saved_and_found_again(tiny: Tiny, tmp_path: Path) -> None:
    train = (
        "train",
        tiny.config,
        "train.precision=fp16",
        "train.checkpoint_every=2",
        "--run",
        tmp_path,
        "--workers",
        2,
    )
    lockstep(*train, "train.steps=4", fault="nan:phase=gradient:rank=1:step=3")
    scale = manifest(tmp_path, 4)["progress"]["scalars"]["loss_scale.value"]
    assert scale <= 2.0**15
    lockstep(*train, "train.steps=6")
    assert manifest(tmp_path, 6)["progress"]["scalars"]["loss_scale.value"] <= scale


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "lockstep"]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", *command()]


@pytest.mark.parametrize("engine", [TORCHRUN, MPIRUN], ids=["torchrun", "mpirun"])
def test_an_existing_engine_runs_the_same_program(
    uninterrupted: dict[int, Path], tiny: Tiny, tmp_path: Path, engine: list[str]
) -> None:
    if shutil.which(engine[0]) is None:
        pytest.skip(f"{engine[0]} is not installed")
    words = [*engine, "train", str(tiny.config), *SETTINGS, "--run", str(tmp_path)]
    result = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    assert weights(tmp_path, STEPS) == weights(uninterrupted[2], STEPS)
