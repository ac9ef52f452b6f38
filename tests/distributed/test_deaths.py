"""Every process of a launch may be killed: the command says which one, no process remains and the run can continue."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Tiny, children, forked, lockstep, running, steps, wait_until_dead
from lockstep.run.journal import read

SERVER = ("strategy.name=server", "strategy.mode=sync", "strategy.servers=1")
OFTEN = "train.checkpoint_every=2"


def worker_of(rank: int) -> Callable[[Path, int], int]:
    return lambda run, launcher: int(read(run / "journal", rank).of("run")[-1]["pid"])


def server_of(run: Path, launcher: int) -> int:
    workers = {worker_of(rank)(run, launcher) for rank in (0, 1)}
    (server,) = set(forked(launcher)) - workers
    return server


def fork_server_of(run: Path, launcher: int) -> int:
    (pid,) = children(launcher)
    return pid


@pytest.mark.parametrize(
    ("settings", "victim", "sentence"),
    [
        pytest.param(SERVER, worker_of(1), "Worker 1 (process {}) was killed by SIGKILL in ", marks=pytest.mark.slow),
        (SERVER, server_of, "Server 0 (process {}) was killed by SIGKILL"),
        ((), fork_server_of, "The process that starts the workers (process {}) was killed by SIGKILL"),
        pytest.param(
            ("strategy.name=resilient",),
            fork_server_of,
            "The process that starts the workers (process {}) was killed",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["worker", "server", "fork-server", "fork-server-of-resilient"],
)
def test_a_process_that_is_killed_is_named_and_nothing_remains(
    tiny: Tiny, tmp_path: Path, settings: tuple[str, ...], victim: Callable[[Path, int], int], sentence: str
) -> None:
    with running(tiny, tmp_path, *settings, OFTEN, workers=2, steps_first=5) as launcher:
        everybody = [*children(launcher.pid), *forked(launcher.pid)]
        pid = victim(tmp_path, launcher.pid)
        assert pid in everybody
        os.kill(pid, signal.SIGKILL)
        _, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    assert sentence.format(pid) in errors
    assert "Start the same command again" in errors
    assert "Traceback" not in errors
    wait_until_dead(everybody)
    last = steps(tmp_path)[-1]["step"] + 2
    lockstep("train", tiny.config, *settings, OFTEN, f"train.steps={last}", "--workers", 2, "--run", tmp_path)
    assert steps(tmp_path)[-1]["step"] == last


def test_a_launch_that_is_stopped_leaves_no_process(tiny: Tiny, tmp_path: Path) -> None:
    with running(tiny, tmp_path, *SERVER, workers=2) as launcher:
        everybody = [*children(launcher.pid), *forked(launcher.pid)]
        assert len(everybody) == 4
        launcher.send_signal(signal.SIGHUP)
        _, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == 129, errors
    assert "and saved" in errors
    assert not any(Path(f"/proc/{pid}").exists() for pid in everybody), "all were waited for"
