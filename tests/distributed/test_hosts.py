"""Under torchrun: stalls are named, dead hosts are lost, those that are left continue, and hosts come back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from conftest import TORCHRUN, Tiny, emulated_network, lockstep, steps
from lockstep.lab.emulated_network import EmulatedHost, EmulatedNetwork
from lockstep.launch.engine import QUICK_RENDEZVOUS
from lockstep.run.journal import Line, lines, read

pytestmark = pytest.mark.slow

SETTINGS = ("train.steps=150", "train.checkpoint_every=10", "train.evaluate_every=null", "model.dropout=0")
SLOW = "slow:phase=backward:ms=60"


def read_faults(run: Path) -> list[Line]:
    """The lines of all monitors."""
    return [line for path in run.glob("journal/monitor-*.jsonl") for line in lines(path) if line is not None]


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@contextmanager
def torchrun(host: EmulatedHost, tiny: Tiny, run: Path, *settings: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1"]
    words += ["--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", "h1:29400", "--rdzv-id", "job"]
    words += ["--rdzv-conf", QUICK_RENDEZVOUS, "-m", "lockstep", "--", "train", str(tiny.config)]
    words += [*SETTINGS, *settings, "--run", str(run)]
    own = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
    environment = os.environ | own | {"LOCKSTEP_FAULT": SLOW}
    process = subprocess.Popen(
        host.command(words), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def attempts(run: Path) -> set[int]:
    return {line["attempt"] for line in steps(run)} if (run / "journal").exists() else set()


def test_a_stopped_worker_is_named_ended_and_replaced_by_torchrun(tiny: Tiny, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [*TORCHRUN, "train", str(tiny.config), "train.steps=16", "train.checkpoint_every=4"]
    command[command.index("--standalone") : command.index("--standalone")] = ["--max-restarts", "1"]
    fault = {"LOCKSTEP_FAULT": "stop:phase=backward:rank=1:step=10:restarts=0"}
    result = subprocess.run(
        [*command, "train.stall_seconds=2", "--run", str(run)],
        env=os.environ | fault | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "in backward of step 10" in result.stderr
    assert "Worker 1 was ended." in result.stderr
    assert [fault["what"] for fault in read_faults(run)] == ["stall", "ended"]
    (restarted,) = [line for line in read(run / "journal").of("fault") if line["what"] == "restarted"]
    assert "Worker 1 was ended." in restarted["detail"]
    assert len(steps(run)) == 16


@emulated_network
def test_a_host_that_dies_is_lost_the_other_continues_and_it_comes_back(tiny: Tiny, tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    with EmulatedNetwork(2) as network, ExitStack() as stack:
        first, second = network.members
        stays = stack.enter_context(torchrun(first, tiny, run))
        with torchrun(second, tiny, run):
            wait_until(lambda: attempts(run) == {1} and len(steps(run)) > 12, "both began")
        wait_until(lambda: 2 in attempts(run), "one continued alone")
        stack.enter_context(torchrun(second, tiny, run))
        said = stays.communicate(timeout=200)[1]
        assert stays.returncode == 0, said
    assert [launch["workers"] for launch in read(run / "journal").of("run")] == [2, 1, 2]
    assert "Host h2 (10.77.0.2, Worker 1) is lost" in said
    lockstep("runs", "audit", run)
    lockstep("train", tiny.config, *SETTINGS, "--workers", 2, "--run", whole)
    for one, other in zip(steps(run), steps(whole), strict=True):
        assert (one["step"], one["cursor"], one["batch"]) == (other["step"], other["cursor"], other["batch"])
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-4)


@emulated_network
def test_a_cut_link_is_a_lost_host_and_no_bare_timeout(tiny: Tiny, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with EmulatedNetwork(2) as network, ExitStack() as stack:
        first, second = network.members
        stays = stack.enter_context(torchrun(first, tiny, run, "train.stall_seconds=10"))
        stack.enter_context(torchrun(second, tiny, run, "train.stall_seconds=10"))
        wait_until(lambda: attempts(run) == {1} and len(steps(run)) > 12, "both began")
        subprocess.run(["ip", "-n", second.namespace, "link", "set", "eth0", "down"], check=True)
        wait_until(lambda: 2 in attempts(run), "one continued alone")
        stays.send_signal(signal.SIGKILL)
    assert [fault["what"] for fault in read_faults(run) if fault["host"] == "h2"][0] == "host lost"
