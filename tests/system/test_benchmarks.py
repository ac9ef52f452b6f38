"""Benchmarks have no limits for their figures, but every one of them must run."""

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Tiny

FOLDER = Path(__file__).parents[2] / "benchmarks"


def benchmark(name: str, *words: object) -> str:
    command = [sys.executable, str(FOLDER / f"{name}.py"), *(str(word) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_a_benchmark_explains_itself(name: str) -> None:
    assert "usage:" in benchmark(name, "--help")


@pytest.mark.slow
def test_speed_is_measured() -> None:
    shown = benchmark("speed", "--models", "S", "--rounds", 1, "--steps", 1)
    assert "all-reduce / no communication" in shown
    assert "of peak" in shown


@pytest.mark.slow
def test_preparation_is_measured(tmp_path: Path) -> None:
    """With enough pairs that a tenth of them still makes the vocabulary."""
    assert "x bare" in benchmark("prepare", "--pairs", 200_000, "--folder", tmp_path)


@pytest.mark.slow
def test_what_mixed_lengths_cost_is_measured(tiny: Tiny) -> None:
    assert "mixed, in parts" in benchmark("attention", tiny.config, "--rounds", 1)


@pytest.mark.slow
def test_what_checkpoints_cost_is_measured(tiny_images: Tiny) -> None:
    assert "never" in benchmark("checkpoints", tiny_images.config, "--steps", 12)


@pytest.mark.slow
def test_ways_to_make_batches_are_compared(tiny: Tiny, tmp_path: Path) -> None:
    assert "bucketed" in benchmark("learning", tiny.config, "train.steps=8", "--folder", tmp_path, "--seeds", 2)


@pytest.mark.slow
def test_the_report_of_a_long_run_is_measured() -> None:
    assert "runs compare" in benchmark("long_report", "--steps", 5000)


@pytest.mark.slow
def test_a_soak_ends_with_the_same_bits(tmp_path: Path) -> None:
    shown = benchmark("soak", "--folder", tmp_path, "--kills", 6, "--stops", 1, "--steps", 300)
    assert "bit-identical" in shown


@pytest.mark.slow
def test_a_stopped_preparation_continues(tmp_path: Path) -> None:
    assert "the same corpus" in benchmark("stops", "--pairs", 200_000, "--folder", tmp_path)


@pytest.mark.slow
def test_a_killed_worker_is_named(tmp_path: Path) -> None:
    shown = benchmark("faults", "--results", tmp_path / "results.jsonl", "--times", 1, "--only", "SIGKILL")
    assert "recall 1.00" in shown


@pytest.mark.slow
def test_the_memory_of_workers_is_shown(tmp_path: Path) -> None:
    assert "RssAnon" in benchmark("memory", "--steps", 240)
