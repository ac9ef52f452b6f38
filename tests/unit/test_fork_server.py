"""Processes that are forked from one that has imported everything: their place, their ends and who dies with whom."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import children, wait_until_dead
from lockstep.config import load
from lockstep.errors import LockstepError
from lockstep.launch.fork_server import ForkServer, Target
from lockstep.launch.supervisor import ChildProcess, Supervisor

SLEEP = "time.sleep(600)"


@contextmanager
def forking(*lines: str) -> Iterator[tuple[ForkServer, list[ChildProcess], Path]]:
    """A fork server and a worker for each line."""
    folders = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as name, Supervisor(stop_seconds=60) as supervisor:
        folder = Path(name)
        with ForkServer(Target("scripted_worker", lines), {"PYTHONPATH": os.pathsep.join(folders)}) as server:
            workers = [line for line in lines if not line.startswith("preload:")]
            started = [
                server.start_worker(rank, len(workers), {"FOLDER": name}, folder) for rank in range(len(workers))
            ]
            for child in started:
                supervisor.watch(child)
            yield server, started, folder
            for child in started:
                child.process.kill()
                child.process.wait()


def read(folder: Path, rank: int = 0) -> str:
    path, deadline = folder / f"value-{rank}", time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, "nothing was written"
        time.sleep(0.01)
    return path.read_text()


def test_each_process_has_its_place_its_session_and_its_exit_code() -> None:
    facts = "write_value(os.environ['LOCAL_RANK'], os.getsid(0) == os.getpid())"
    with forking(f"{facts}; sys.exit(3)", f"{facts}; os.abort()") as (_, started, folder):
        assert [child.process.wait() for child in started] == [3, -signal.SIGABRT]
        assert [read(folder, rank) for rank in (0, 1)] == ["0 True", "1 True"]
        assert started[1].describe_exit() == f"Worker 1 (process {started[1].process.pid}) was killed by SIGABRT"


def test_what_was_preloaded_is_there_after_the_fork() -> None:
    with forking("write_value(preloaded)", "preload:pass") as (_, started, folder):
        assert started[0].process.wait() == 0
        assert read(folder) == "['preload:pass']"


def test_an_import_that_starts_a_thread_makes_every_process_a_new_python() -> None:
    thread = "preload:import threading; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    facts = "write_value(preloaded, os.getsid(0) == os.getpid(), rank, len(os.listdir('/proc/self/task')))"
    with forking(f"{facts}; sys.exit(4)", thread) as (_, started, folder):
        assert started[0].process.wait() == 4
        assert read(folder) == "[] True 0 1"


def test_signals_reach_only_the_process_they_are_for() -> None:
    with forking(f"write_value(); {SLEEP}", f"write_value(); {SLEEP}") as (_, started, folder):
        read(folder, 0), read(folder, 1)
        started[0].process.send_signal(signal.SIGTERM)
        assert started[0].process.wait() == -signal.SIGTERM
        assert started[1].process.poll() is None
        started[0].process.send_signal(signal.SIGTERM)  # to one that has ended: nothing happens
        assert started[1].process.poll() is None


def test_ctrl_c_interrupts_a_forked_python() -> None:
    with forking(f"write_value(); {SLEEP}") as (_, started, folder):
        read(folder)
        started[0].process.send_signal(signal.SIGINT)
        assert started[0].process.wait() == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_a_process_that_was_to_start_later(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    with forking("write_value()") as (server, started, folder):
        later = server.start_worker(0, 1, {}, folder, delay_seconds=600).process
        assert started[0].process.wait() == 0
        later.send_signal(number)
        assert later.wait() == -number
    assert capfd.readouterr().err == ""


def test_no_zombie_stays() -> None:
    with forking("0", "sys.exit(1)", f"write_value(os.getppid()); {SLEEP}") as (_, started, folder):
        fork_server = int(read(folder, 2))
        for child in started[:2]:
            child.process.wait()
        assert children(fork_server) == [started[2].process.pid]


def test_a_stop_signal_does_not_wait_for_imports() -> None:
    with forking(SLEEP, f"preload:{SLEEP}") as (_, started, _):
        started[0].process.send_signal(signal.SIGINT)
        assert started[0].process.wait() == -signal.SIGTERM
        assert started[0].process.poll() == -signal.SIGTERM


def test_a_fork_server_that_is_killed_takes_its_processes_along_and_is_named() -> None:
    with forking(f"write_value(os.getppid()); {SLEEP}", SLEEP) as (_, started, folder):
        fork_server = int(read(folder))
        os.kill(fork_server, signal.SIGKILL)
        assert started[0].process.wait() == -signal.SIGKILL
        with pytest.raises(LockstepError, match="The process that starts the workers .* was killed by SIGKILL"):
            started[0].process.poll()
        wait_until_dead([child.process.pid for child in started])


def test_an_import_that_fails_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with forking(SLEEP, "preload:import no_such_module") as (_, started, _):
        started[0].process.wait()
        with pytest.raises(LockstepError, match="ended with exit code 1, and the workers ended with it"):
            started[0].process.poll()
    assert "No module named 'no_such_module'" in capfd.readouterr().err


PRELOAD = """
import os, sys
from lockstep.train.worker import preload
for config in sys.argv[1:]:
    preload("run", config)
import torch
print(len(os.listdir("/proc/self/task")), torch.cuda.is_initialized())
"""


def test_what_workers_import_starts_no_thread_and_touches_no_gpu() -> None:
    demo = Path(__file__).parents[2] / "configs" / "demo.yaml"
    strategies = ("auto", "sharded", "replicas", "local", "server", "resilient")
    settings = [[f"strategy.name={name}"] for name in strategies] + [["train.deterministic=true"]]
    configs = [load(demo, words).model_dump_json() for words in settings]
    images = json.loads(configs[0]) | {"task": "classification"}
    environment = os.environ | {"OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "1"}
    program = [sys.executable, "-c", PRELOAD, *configs, json.dumps(images)]
    result = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert result.stdout == "1 False\n", result.stderr
