"""Debian's mpirun runs what `lockstep launch --on mpi` starts, over real sshd on another port."""

import json
import os
import shlex
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import TORCHRUN, Tiny, command, steps
from slurm_cluster import wait_until
from ssh_hosts import PORT, SshHosts, needs_sshd, ssh_hosts

pytestmark = [
    *needs_sshd,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="openmpi-bin is not installed"),
]
SETTINGS = ("train.steps=20", "model.dropout=0", "train.evaluate_every=null", "train.checkpoint_every=1000")


def run_on_console(hosts: SshHosts, *words: object) -> str:
    """Runs the real command on the machine from which the job is launched."""
    result = subprocess.run(
        ["ip", "netns", "exec", hosts.console.namespace, *command(*words)],
        env=os.environ | {"LOCKSTEP_STATE": str(hosts.folder / "state")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def list_processes(run: Path, secrets: set[str], commands: set[str]) -> None:
    """Adds the command lines of all processes, and the secrets of those that have this run in theirs."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_text(errors="replace")
            commands.add(words)
            variables = (path / "environ").read_text(errors="replace").split("\0") if str(run) in words else []
            secrets.update(text.partition("=")[2] for text in variables if text.startswith("LOCKSTEP_SECRET="))


def test_mpirun_over_ssh_reaches_the_losses_of_torchrun(tiny: Tiny, tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    words = [*TORCHRUN, "train", str(tiny.config), *SETTINGS, "--run", str(whole)]
    subprocess.run(words, capture_output=True, timeout=240, check=True)
    (tmp_path / "ssh").mkdir()
    with ssh_hosts(tmp_path / "ssh", 2) as hosts:
        machines = tmp_path / "hosts.txt"
        machines.write_text(f"h1 port={PORT}\nh2 port={PORT}\n")
        options = ("--hosts", machines, "--ssh", shlex.join(hosts.ssh), "--interface", "eth0")
        run_on_console(
            hosts, "launch", tiny.config, *SETTINGS, "--on", "mpi", *options, "--run", run, "--name", "first"
        )

        secrets, commands = set[str](), set[str]()

        def read_state() -> str:
            list_processes(run, secrets, commands)
            return str(json.loads(run_on_console(hosts, "jobs", "status", "--json"))["state"])

        wait_until(lambda: read_state() not in ("running", "waiting"), "the job has ended")
        said = run_on_console(hosts, "jobs", "logs", "first")
        assert read_state() == "finished", said
    assert len(secrets) == 1, "the workers have it from mpirun"
    assert not any(secret in command for secret in secrets for command in commands), "nobody sees it in a command line"
    environment = json.loads((run / "environment.json").read_text())
    assert [worker["host"] for worker in environment["workers"]] == ["h1", "h2"]
    assert [line["loss"] for line in steps(run)] == pytest.approx([line["loss"] for line in steps(whole)], rel=1e-4)
