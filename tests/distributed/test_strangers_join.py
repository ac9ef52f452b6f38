"""Real launches that a stranger joins, and launches whose workers have the secret of their job."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from conftest import TORCHRUN, Tiny, command, emulated_network, running, steps
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.lab.trial import make_rank_environment
from lockstep.launch.run_all import Program, run_all

STRANGER = [sys.executable, str(Path(__file__).parent.parent / "stranger.py")]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "-x", "LOCKSTEP_SECRET_FILE", *command()]
SECRET = "a secret of more than sixteen characters"


def make_rank(rank: int, port: int, **more: str) -> dict[str, str]:
    """The environment of one of two workers as an engine for several machines sets it."""
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    return os.environ | place | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} | more


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_worker(tiny: Tiny, run: Path, environment: dict[str, str], *settings: str) -> "subprocess.Popen[str]":
    words = command("train", tiny.config, "train.steps=2", *settings, "--run", run)
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> str:
    """Waits for a failure; returns what it said, which must not be a traceback."""
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert "Traceback" not in said, said
    return said


@pytest.mark.slow
def test_a_stranger_without_the_secret_is_not_believed(tiny: Tiny, tmp_path: Path, port: int) -> None:
    """It joins as torch does, so the worker never reads what it says, and waits for the real one."""
    settings = ["train.timeout_seconds=8", "train.stall_seconds=5"]
    worker = start_worker(tiny, tmp_path / "run", make_rank(0, port, LOCKSTEP_SECRET=SECRET), *settings)
    stranger = subprocess.Popen(
        [*STRANGER, "pickle", tmp_path / "payload"], env=make_rank(1, port), stderr=subprocess.DEVNULL
    )
    try:
        said = finish(worker)
    finally:
        stranger.kill()
        stranger.wait()
    assert f"Not all 2 workers joined at 127.0.0.1:{port}" in said
    assert not (tmp_path / "payload").exists()


@pytest.mark.parametrize("secret", ["", pytest.param(SECRET, marks=pytest.mark.slow)])
def test_a_stranger_that_gets_in_cannot_run_code(tiny: Tiny, tmp_path: Path, port: int, secret: str) -> None:
    """Even one that knows the protocol, in a job without a secret or with a stolen one."""
    worker = start_worker(tiny, tmp_path / "run", make_rank(0, port, LOCKSTEP_SECRET=secret))
    stranger = subprocess.Popen(
        [*STRANGER, "lockstep", tmp_path / "payload"],
        env=make_rank(1, port, LOCKSTEP_SECRET=secret),
        stderr=subprocess.DEVNULL,
    )
    said = finish(worker)
    stranger.wait()
    assert "Worker 1 sent a message that is not JSON" in said
    assert (f"Whoever reaches 127.0.0.1:{port} can join this job" in said) == (not secret)
    assert not (tmp_path / "payload").exists()


def test_a_worker_with_another_secret_ends_the_launch(tiny: Tiny, tmp_path: Path, port: int) -> None:
    secrets = [SECRET, "another secret of this length"]
    workers = [
        start_worker(tiny, tmp_path / "run", make_rank(rank, port, LOCKSTEP_SECRET=secret))
        for rank, secret in enumerate(secrets)
    ]
    for said in map(finish, workers):
        assert "does not know the secret that worker" in said or "lost the connection" in said
        assert not any(secret in said for secret in secrets)
    assert not (tmp_path / "run" / "config.yaml").exists()


@emulated_network
def test_a_stranger_on_another_machine_is_named_by_its_address() -> None:
    """The address is that of its connection: it may say what it wants of itself."""
    program = [sys.executable, "-m", "lockstep.lab.plan.sweep"]
    with EmulatedNetwork(2) as network:
        programs = [
            Program(
                host.command(program), make_rank_environment(rank, network) | {"LOCKSTEP_SECRET": f"{SECRET} {rank}"}
            )
            for rank, host in enumerate(network.members)
        ]
        error = run_all(programs)
    others = {"Worker 1, which says that it runs on h2 ": "10.77.0.2"}
    others["Worker 0, which says that it runs on h1 "] = "10.77.0.1"
    assert any(error.startswith(who) and f"It connects from {address}." in error for who, address in others.items()), (
        error
    )


@pytest.mark.parametrize("engine", [pytest.param(TORCHRUN, marks=pytest.mark.slow), MPIRUN], ids=["torchrun", "mpirun"])
def test_workers_of_an_engine_take_the_secret_from_a_file(tiny: Tiny, tmp_path: Path, engine: list[str]) -> None:
    if shutil.which(engine[0]) is None:
        pytest.skip(f"{engine[0]} is not installed")
    path, run = tmp_path / "secret", tmp_path / "run"
    path.touch(mode=0o600)
    path.write_text(SECRET)
    words = [*engine, "train", str(tiny.config), "train.steps=2", "--run", str(run)]
    environment = os.environ | {"LOCKSTEP_SECRET_FILE": str(path)}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    assert len(steps(run, 1)) == 2
    assert "can join this job" not in result.stderr
    assert SECRET not in result.stdout + result.stderr
    assert not any(SECRET.encode() in file.read_bytes() for file in run.rglob("*") if file.is_file())


def test_the_secret_of_a_local_launch_is_nowhere_to_be_seen(tiny: Tiny, tmp_path: Path) -> None:
    """Workers get it over a pipe: no command line and no environment of a process shows it, and no file of the run."""
    run = tmp_path / "run"
    with running(tiny, run, workers=2) as launcher:
        processes = [psutil.Process(launcher.pid), *psutil.Process(launcher.pid).children(recursive=True)]
        assert len(processes) >= 4  # also those that write checkpoints
        for process in processes:
            assert not process.environ().get("LOCKSTEP_SECRET")
            assert not any(re.search("[0-9a-f]{64}", word) for word in process.cmdline())
    assert not any(b"LOCKSTEP_SECRET" in file.read_bytes() for file in run.rglob("*") if file.is_file())
