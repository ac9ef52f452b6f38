"""Processes exchange tensors and JSON, never Python objects."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lockstep
from conftest import Tiny
from conftest import lockstep as run_lockstep

GUARDS = Path(__file__).parent.parent / "guards"
SOURCE = Path(lockstep.__file__).parent
OBJECT_COLLECTIVES = {
    *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"),
    *("send_object_list", "recv_object_list"),
}
UNPICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
PIPES_ONLY = {"data/corpus/pool.py"}
"""Modules that pickle, over pipes to their own child processes."""


def test_no_module_uses_object_collectives_or_pickle() -> None:
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {node.attr} if isinstance(node, ast.Attribute) else set()
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
            if names & OBJECT_COLLECTIVES or (names & UNPICKLERS and str(path.relative_to(SOURCE)) not in PIPES_ONLY):
                found.append((str(path), sorted(names)))
    assert found == []


def test_the_guard_catches_an_object_collective() -> None:
    program = """
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_gather_object([None], {})
"""
    environment = os.environ | {"PYTHONPATH": str(GUARDS)}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert "a Python object was exchanged" in result.stderr


@pytest.mark.parametrize(
    "settings",
    [
        ["strategy.name=allreduce"],
        ["strategy.name=server", "--servers", 1],
        *(
            pytest.param(settings, marks=pytest.mark.slow)
            for settings in (
                ["strategy.name=replicas"],
                ["strategy.name=local"],
                ["strategy.name=server"],
                ["strategy.name=server", "strategy.mode=async"],
                ["strategy.name=resilient"],
            )
        ),
        pytest.param(
            ["strategy.name=sharded"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_exchanges_no_python_objects(tiny: Tiny, tmp_path: Path, settings: list[object]) -> None:
    """The run starts, evaluates, saves, and continues from its checkpoint."""
    for steps in (2, 4):
        words = ["train", tiny.config, f"train.steps={steps}", "train.evaluate_every=2", *settings, "--workers", 2]
        run_lockstep(*words, "--run", tmp_path / "run", PYTHONPATH=str(GUARDS))


@pytest.mark.slow
def test_sharded_training_itself_exchanges_no_python_objects(tiny: Tiny, tmp_path: Path) -> None:
    words = ["train", tiny.config, "train.steps=2", "strategy.name=sharded", "--workers", 2, "--run", tmp_path / "run"]
    run_lockstep(*words, PYTHONPATH=str(GUARDS), LOCKSTEP_WITHOUT="nothing")
