"""A real Slurm on two emulated hosts: munged, slurmctld and a slurmd on each host."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import command
from lockstep.lab.emulated_network import EmulatedHost, EmulatedNetwork

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
needs_slurm = pytest.mark.skipif(
    not all(shutil.which(name) for name in PROGRAMS), reason="scripts/test-packages installs Slurm and munge"
)
CONFIG = """
ClusterName=test
SlurmctldHost=h1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerParameters=sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=10
MinJobAge=5
MpiDefault=none
NodeName=h[1-2] CPUs=2 RealMemory=500 State=UNKNOWN
PartitionName=low Nodes=h[1-2] Default=YES PriorityTier=1 GraceTime=60 State=UP
PartitionName=high Nodes=h[1-2] PriorityTier=10 PreemptMode=OFF State=UP
"""


def wait_until(is_true: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@dataclass
class SlurmCluster:
    folder: Path
    first: EmulatedHost

    def run(self, *words: object) -> str:
        """Runs a program on the first host, as somebody who has logged in there."""
        result = subprocess.run(
            self.first.command([str(word) for word in words]),
            env=self._environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, f"{words}: {result.stdout}{result.stderr}"
        return result.stdout

    def lockstep(self, *words: object) -> str:
        return self.run(*command(*words))

    def _environment(self) -> dict[str, str]:
        own = {"SLURM_CONF": str(self.folder / "slurm.conf"), "LOCKSTEP_STATE": str(self.folder / "record")}
        return os.environ | own


@contextmanager
def start_slurm(folder: Path) -> Iterator[SlurmCluster]:
    """Starts the daemons and waits until both nodes are idle."""
    (folder / "slurm.conf").write_text(CONFIG.format(folder=folder))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    folder.chmod(0o755)
    processes: list[subprocess.Popen[bytes]] = []

    def start(words: list[str]) -> None:
        environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
        log = (folder / "daemons.log").open("ab")
        processes.append(subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True))

    with EmulatedNetwork(2) as network:
        try:
            files = [
                f"--{name}={folder}/munge.{name.partition('-')[0]}" for name in ("key-file", "pid-file", "log-file")
            ]
            start(
                [
                    "munged",
                    "--foreground",
                    "--force",
                    f"--socket={folder}/munge.socket",
                    *files,
                    f"--seed-file={folder}/seed",
                ]
            )
            wait_until((folder / "munge.socket").exists, "munged listens")
            first = network.members[0]
            start(first.command(["slurmctld", "-D", "-f", f"{folder}/slurm.conf"]))
            for host in network.members:
                start(host.command(["slurmd", "-D", "-N", host.name, "-f", f"{folder}/slurm.conf"]))
            cluster = SlurmCluster(folder, first)
            wait_until(lambda: "idle" in _read_states(cluster), "both nodes are idle")
            yield cluster
        finally:
            for process in processes:
                process.kill()
                process.wait()


def _read_states(cluster: SlurmCluster) -> str:
    words = cluster.first.command(["sinfo", "--noheader", "--partition=low", "--format=%T %D"])
    answer = subprocess.run(words, env=cluster._environment(), capture_output=True, text=True, check=False).stdout
    return answer if answer.strip() == "idle 2" else ""
