"""`lockstep checkpoint` on a real run."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from conftest import Tiny, lockstep
from lockstep.run.checkpoint import list_all
from lockstep.run.directory import RunDirectory


@pytest.fixture(scope="module")
def saved(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints of steps 2 to 10, every other one evaluated."""
    run = tmp_path_factory.mktemp("saved") / "run"
    settings = ("train.steps=10", "train.checkpoint_every=2", "train.evaluate_every=4", "train.keep_last=5")
    lockstep("train", tiny.config, *settings, "--workers", 1, "--run", run)
    return run


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "run")


def read(*words: object, code: int = 0) -> dict[str, Any]:
    return dict(json.loads(lockstep("checkpoint", *words, "--json", code=code).stdout))


def damage(run: Path, step: int, name: str = "state/worker-0000.safetensors") -> None:
    """Changes the last byte, so that the size stays."""
    path = run / "checkpoints" / f"step-{step:08d}" / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def steps_of(run: Path) -> list[int]:
    return [saved.step for saved in list_all(run / "checkpoints")]


def test_the_list_says_what_is_there_and_why(saved: Path) -> None:
    rows = read("list", saved)["checkpoints"]
    assert [row["step"] for row in rows] == [2, 4, 6, 8, 10]
    assert [row["is_last"] for row in rows] == [False] * 4 + [True]
    assert sum(row["is_best"] for row in rows) == 1
    assert all(row["reason"].startswith("last 5") and row["damage"] is None for row in rows)
    for row in rows:
        size = sum(path.stat().st_size for path in (saved / "checkpoints" / row["name"]).rglob("*") if path.is_file())
        assert row["bytes"] == size
    assert "5 checkpoints" in lockstep("checkpoint", "list", saved).stdout


def test_the_list_names_damage_that_sizes_show(run: Path) -> None:
    folder = run / "checkpoints"
    (folder / "step-00000004" / "model" / "config.json").unlink()
    (folder / "step-00000006" / "manifest.json").write_text("{}")
    damages = {row["step"]: row["damage"] for row in read("list", run)["checkpoints"]}
    assert damages == {2: None, 4: "model/config.json is missing", 6: "no readable manifest", 8: None, 10: None}


def test_the_list_reads_a_run_at_an_address(run: Path) -> None:
    assert read("list", f"file://{run}")["checkpoints"] == read("list", run)["checkpoints"]
    error = lockstep("checkpoint", "verify", f"file://{run}", code=2).stderr
    assert "needs a run in a local folder" in error


def test_show_explains_every_file_and_every_moment(saved: Path) -> None:
    shown = read("show", saved, "--step", 4)
    assert sum(file["bytes"] for file in shown["files"]) == shown["bytes"]
    assert {file["name"].partition("/")[0] for file in shown["files"]} == {"manifest.json", "state", "model"}
    values = {group["name"]: group["values"] for group in shown["state"]}
    assert values["model"] == values["optimizer.exp_avg"] == values["optimizer.exp_avg_sq"] > 0
    assert read("show", saved)["checkpoint"].endswith("step-00000010")
    assert "steps: 2, 4, 6, 8, 10" in lockstep("checkpoint", "show", saved, "--step", 5, code=2).stderr


def test_verify_names_every_damaged_file(run: Path) -> None:
    assert read("verify", run)["files"] == 20
    damage(run, 4)
    damage(run, 4, "model/vocabulary.model")
    damages = read("verify", run, code=1)["checkpoints"]
    assert damages.pop("step-00000004") == [
        "model/vocabulary.model does not match its digest",
        "state/worker-0000.safetensors does not match its digest",
    ]
    assert set(map(tuple, damages.values())) == {()}
    assert "4 of 5 checkpoints are complete" in lockstep("checkpoint", "verify", run, code=1).stdout


def test_prune_keeps_the_best_and_the_last(run: Path) -> None:
    best = next(row["step"] for row in read("list", run)["checkpoints"] if row["is_best"])
    plan = read("prune", run, "--keep-last", 1, "--keep-best", 0, "--dry-run")
    assert steps_of(run) == [2, 4, 6, 8, 10]
    read("prune", run, "--keep-last", 1, "--keep-best", 0)
    assert steps_of(run) == sorted({best, 10})
    assert steps_of(run) == [int(step) for step, fate in plan["checkpoints"].items() if fate == "kept"]
    assert not list((run / "checkpoints").glob(".step-*"))


def test_prune_does_not_count_a_damaged_checkpoint(run: Path) -> None:
    """Otherwise the only checkpoint from which the run can continue would be deleted."""
    damage(run, 10)
    result = read("prune", run, "--keep-last", 1, "--keep-best", 1)
    assert result["checkpoints"]["10"] == "damaged, left alone"
    assert result["checkpoints"]["8"] == "kept"
    assert {8, 10} <= set(steps_of(run))


def test_prune_refuses_a_run_that_is_being_trained(run: Path) -> None:
    with RunDirectory(run).lock():
        error = lockstep("checkpoint", "prune", run, "--keep-last", 1, code=1).stderr
    assert "is being trained right now" in error
    assert steps_of(run) == [2, 4, 6, 8, 10]


@pytest.mark.parametrize("command", [("list",), ("show",), ("verify",), ("prune", "--keep-last", 1)], ids=str)
def test_a_folder_that_is_no_run_is_one_sentence(command: tuple[object, ...], tmp_path: Path) -> None:
    name, *options = command
    assert "is not a run" in lockstep("checkpoint", name, tmp_path, *options, code=2).stderr
