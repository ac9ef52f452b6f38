"""The OpenAPI description is true: Schemathesis sends what it allows and what it forbids to a real server."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from serve import RunningServer, run_server


@pytest.fixture(scope="module")
def server(export_folder: Path, back_folder: Path) -> Iterator[RunningServer]:
    with run_server(export_folder, back_folder) as running:
        yield running


def explore(server: RunningServer, folder: Path, *options: str) -> str:
    """Runs Schemathesis with all its checks."""
    words = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.address}/openapi.json", "--no-color", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout[-20_000:]
    return done.stdout


@pytest.mark.slow
def test_random_requests_are_answered_as_described(server: RunningServer, tmp_path: Path) -> None:
    output = explore(server, tmp_path, "--phases", "fuzzing", "--max-examples", "15", "--seed", "1")
    assert "No issues found" in output
    assert "7 selected / 7 total" in output


@pytest.mark.slow
def test_every_limit_is_as_described(server: RunningServer, tmp_path: Path) -> None:
    explore(server, tmp_path, "--phases", "coverage,fuzzing", "--max-examples", "150")
