"""What sharding promises beyond the same update: a worker holds its part only, and sends what is counted."""

import json
import math
import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

import lockstep as package
from conftest import Tiny, lockstep, saved_parts, steps, weights

PROGRAM = Path(__file__).with_name("sharded_worker.py")
EMBEDDING, WIDTH, INNER, LAYERS = 19, 8, 5, 3  # of the program's `tied` model


@cache
def workers(count: int, *words: str) -> list[dict[str, Any]]:
    """What each worker of the program saw."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(package.__file__).parents[1])}
    command = [sys.executable, str(PROGRAM), *words]
    started = [
        subprocess.Popen(command, env=environment | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(count)
    ]
    try:
        printed = [process.communicate(timeout=240)[0] for process in started]
        assert [process.returncode for process in started] == [0] * count
    finally:
        for process in started:
            process.kill()
    return [json.loads(text) for text in printed]


def test_every_worker_holds_only_its_part_of_parameters_and_optimizer() -> None:
    tied = workers(3, "tied", "fp32")
    names = tied[0]["held"].keys()
    assert {name.split(".")[1] for name in names if name.startswith("optimizer.")} == {"exp_avg", "exp_avg_sq"}
    assert sum(sum(worker["held"].values()) for worker in tied) == 3 * tied[0]["parameters"]
    for worker in tied:
        assert worker["held"].keys() == names
        assert sum(worker["held"].values()) < 1.3 * tied[0]["parameters"]


def test_a_save_gathers_the_model_in_main_memory_of_the_first_worker_only() -> None:
    """A model that is sharded because it does not fit on one device could not be saved."""
    for rank, worker in enumerate(workers(3, "tied", "fp32")):
        assert worker["gathered to export"] == 0
        assert sum(worker["exported"]) == (4 * worker["parameters"] if rank == 0 else 0)


def test_gathered_layers_are_forgotten_unless_they_are_kept() -> None:
    tied = workers(3, "tied", "fp32")
    last = [f"layers.{LAYERS - 1}.{name}.weight" for name in ("inner", "outer")]  # backward begins with it
    assert tied[0]["whole after forward"] == ["embedding.weight", *last]
    kept = workers(2, "tied", "fp32", "keep")
    assert len(kept[0]["whole after forward"]) == 1 + 2 * LAYERS


def padded(rows: int, columns: int, count: int) -> int:
    """Values that travel for a tensor whose rows are dealt out to `count` workers."""
    return math.ceil(rows / count) * count * columns


@pytest.mark.parametrize(
    ("count", "precision", "keep"),
    [(3, "fp32", False), (2, "fp32", True), pytest.param(3, "bf16", False, marks=pytest.mark.slow)],
    ids=str,
)
def test_bytes_sent_follow_the_formula(count: int, precision: str, keep: bool) -> None:
    seen = workers(count, "tied", precision, *["keep"] * keep)
    layer = padded(INNER, WIDTH, count) + padded(WIDTH, INNER, count)
    vectors = LAYERS * (2 * padded(WIDTH, 1, count) + padded(INNER, 1, count)) + 2 * padded(WIDTH, 1, count)
    rest = padded(EMBEDDING, WIDTH, count) + vectors
    gathers = LAYERS if keep else 2 * LAYERS - 1
    gathered = 4 * rest + (2 if precision == "bf16" else 4) * gathers * layer
    sent = (count - 1) * (gathered + 4 * (rest + LAYERS * layer)) // count
    assert all(worker["sent"] == [sent] * 3 for worker in seen)


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        ("tied", "fp32"),
        ("convolutions", "fp32"),
        ("recurrent", "fp32"),
        pytest.param("tied", "bf16", marks=pytest.mark.slow),
        ("convolutions", "bf16"),
    ],
)
def test_any_model_takes_the_steps_of_a_single_process(model: str, precision: str) -> None:
    """In bf16 too: what travels rounded is what autocast would have rounded."""
    seen = workers(3, model, precision)
    for worker in seen:
        assert worker["norms"] == seen[0]["norms"]
        assert worker["norms"] == pytest.approx(worker["single norms"], rel=1e-5 if precision == "fp32" else 1e-2)
        assert max(worker["apart"].values()) < (1e-5 if precision == "fp32" else 1e-3)


def test_no_worker_imports_the_compiler() -> None:
    tied = workers(3, "tied", "fp32")
    assert not any(worker["compiler"] for worker in tied)


@pytest.mark.slow
def test_parameters_pass_between_strategies_without_a_changed_bit(tiny: Tiny, tmp_path: Path) -> None:
    """After the first launch the learning rate is too small to change a parameter; loading, gathering and saving go on.
    Width 4 leaves the last of three workers without a row of most tensors."""
    small = ("model.width=4", "model.heads=2", "model.feed_forward=8")
    models = []
    for step, (strategy, count) in enumerate(
        (("sharded", 3), ("allreduce", 2), ("sharded", 2), ("sharded", 3)), start=3
    ):
        settings = (f"schedule.peak={1e-3 if step == 3 else 1e-30}", f"train.steps={step}", f"strategy.name={strategy}")
        lockstep("train", tiny.config, *small, *settings, "--workers", count, "--run", tmp_path)
        parts = saved_parts(tmp_path, step)
        assert max(len(of_tensor) for of_tensor in parts.values()) == (count if strategy == "sharded" else 1)
        whole = weights(tmp_path, step)
        models.append({name: value for name, value in whole.items() if name.startswith("model.")})
        exported = load_file(tmp_path / "checkpoints" / f"step-{step:08d}" / "model" / "model.safetensors")
        assert models[-1] == {f"model.{name}": tensor.tobytes() for name, tensor in exported.items()}
    assert all(model == models[0] for model in models)


def test_a_run_in_bf16_follows_all_reduce(tiny: Tiny, tmp_path: Path) -> None:
    losses = []
    for strategy in ("allreduce", "sharded"):
        run = tmp_path / strategy
        settings = ("train.precision=bf16", "model.dropout=0", f"strategy.name={strategy}")
        lockstep("train", tiny.config, *settings, "--workers", 2, "--run", run)
        losses.append([line["loss"] for line in steps(run)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def test_powersgd_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    settings = ("strategy.name=sharded", "strategy.gradients=powersgd")
    refused = lockstep("train", tiny.config, *settings, "--workers", 2, "--run", tmp_path, code=2)
    assert "strategy.gradients=powersgd is not for strategy.name=sharded; allreduce has it" in refused.stderr
