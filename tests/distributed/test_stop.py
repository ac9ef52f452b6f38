"""Promise 5: stopping and skipping are decided by all workers together; and one launch at a time."""

import signal
from pathlib import Path

import pytest

from conftest import Tiny, lockstep, manifest, running, steps

ASYNC = ("strategy.name=server", "strategy.mode=async", "--servers", "1")


@pytest.mark.parametrize(
    ("settings", "workers", "number", "code"),
    [
        ((), 1, signal.SIGINT, 130),
        pytest.param((), 2, signal.SIGINT, 130, marks=pytest.mark.slow),
        ((), 2, signal.SIGTERM, 143),
        pytest.param(("strategy.name=sharded",), 2, signal.SIGTERM, 143, marks=pytest.mark.slow),
        (("strategy.name=server", "--servers", "1"), 2, signal.SIGTERM, 143),
        (("strategy.name=local", "strategy.every=3"), 2, signal.SIGTERM, 143),
        pytest.param(("strategy.name=replicas",), 2, signal.SIGTERM, 143, marks=pytest.mark.slow),
        (("strategy.name=resilient",), 2, signal.SIGINT, 130),
    ],
)
def test_a_signal_saves_and_stops_all_workers_at_the_same_step(
    tiny: Tiny, tmp_path: Path, settings: tuple[str, ...], workers: int, number: signal.Signals, code: int
) -> None:
    with running(tiny, tmp_path, *settings, workers=workers) as process:
        process.send_signal(number)
        _, error = process.communicate(timeout=60)
    assert process.returncode == code, error
    assert "Traceback" not in error
    assert "continues from there" in error
    last = {steps(tmp_path, rank)[-1]["step"] for rank in range(workers)}
    assert len(last) == 1
    assert manifest(tmp_path, last.pop())["progress"]["step"] == steps(tmp_path)[-1]["step"]


def test_a_second_launch_on_the_same_run_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    with running(tiny, tmp_path, workers=1) as process:
        refused = lockstep("train", tiny.config, "train.steps=100000", "--run", tmp_path, code=1)
        assert "is being trained right now" in refused.stderr
        assert str(process.pid) in refused.stderr
        assert process.poll() is None


@pytest.mark.parametrize("strategy", ["allreduce", "sharded"])
def test_a_gradient_that_is_not_finite_on_one_worker_is_left_out_by_all(
    tiny: Tiny, tmp_path: Path, strategy: str
) -> None:
    fault = "nan:phase=gradient:rank=1:step=4"
    lockstep("train", tiny.config, f"strategy.name={strategy}", "--workers", 2, "--run", tmp_path, fault=fault)
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
    train = ("train", tiny.config, "train.precision=fp16", "train.checkpoint_every=2", "--run", tmp_path)
    lockstep(*train, "train.steps=4", fault="nan:phase=gradient:step=3")
    scale = manifest(tmp_path, 4)["progress"]["scalars"]["loss_scale.value"]
    assert scale <= 2.0**15
    lockstep(*train, "train.steps=6")
    assert manifest(tmp_path, 6)["progress"]["scalars"]["loss_scale.value"] <= scale
