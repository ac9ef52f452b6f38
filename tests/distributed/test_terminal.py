"""The terminal shows our sentences; what libraries write is in the run's logs."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import TORCHRUN, Tiny, command, running
from lockstep.run.journal import read

EXTEND = Path(__file__).parents[2] / "docs" / "develop" / "extend.md"
RAW = """
import logging, os, warnings


def make(config):
    warnings.warn("a raw warning")
    logging.getLogger("torch").warning("from a logger")
    os.write(2, b"from C++\\n")
    return Characters(config)
"""
OURS = re.compile(r"Starting: |step \d|Evaluations take|The warm-up |Nothing to do|\s*$")


@pytest.fixture
def noisy_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a task whose libraries write to stderr in every way, torch's own C++ warning included."""
    monkeypatch.chdir(tmp_path)
    text = EXTEND.read_text(encoding="utf-8")
    program, config = (re.findall(rf"^```{name}\n(.*?)^```$", text, re.M | re.S)[0] for name in ("python", "yaml"))
    torch_warns = program.replace("self.train[:1].copy()", "self.train[:1]")  # an array that is not writable
    assert torch_warns != program
    Path("characters.py").write_text(torch_warns + RAW)
    Path("characters.yaml").write_text(config)
    for name in ("train.txt", "held-out.txt"):
        Path(name).write_text("the cat sat on the mat and the rat sat on the cat. " * 60)
    return tmp_path


@pytest.mark.parametrize(
    ("start", "options"),
    [(command(), ()), (command(), ("--workers", "2")), pytest.param(TORCHRUN, (), marks=pytest.mark.slow)],
    ids=["one worker", "two workers", "torchrun"],
)
def test_libraries_write_to_the_logs_only(noisy_task: Path, start: list[str], options: tuple[str, ...]) -> None:
    words = [*start, "train", "characters.yaml", "train.steps=4", *options, "--run", "run"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    assert "Starting: " in result.stderr
    assert [line for line in result.stderr.splitlines() if not OURS.match(line)] == []
    logs = sorted((noisy_task / "run" / "logs").iterdir())
    alone = start is not TORCHRUN and not options
    assert [log.name for log in logs] == ["worker-0000.log", "worker-0001.log"][: 1 if alone else 2]
    for log in logs:
        text = log.read_text()
        assert all(raw in text for raw in ("UserWarning: a raw warning", "from a logger", "from C++", "not writable"))


def test_the_frames_after_a_lost_worker_are_in_the_logs(tiny: Tiny, tmp_path: Path) -> None:
    """Asynchronous workers ask the store of worker 0, whose death torch's C++ code describes at length."""
    settings = ("strategy.name=server", "strategy.mode=async", "strategy.servers=1")
    with running(tiny, tmp_path, *settings, workers=2) as launcher:
        pid = read(tmp_path / "journal").of("run")[-1]["pid"]
        os.kill(pid, signal.SIGKILL)
        _, errors = launcher.communicate(timeout=60)
    shown = [line for line in errors.splitlines() if not OURS.match(line)]
    assert shown[0].startswith(f"Error: Worker 0 (process {pid}) was killed by SIGKILL in ")
    assert shown[1:] == ["       Start the same command again: it continues from the last checkpoint."]
    text = "".join(log.read_text() for log in (tmp_path / "logs").iterdir())
    assert "frame #0" in text
    assert (tmp_path / "logs" / "server-0000.log").exists()
