"""Two emulated hosts that share no folder: what is at the same path on both is another disk."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from conftest import Tiny
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.lab.trial import make_rank_environment

MOUNT = 'mount --bind "$0" "$1"; shift; "$@"; exit $?'
"""It does not become the program: the first process of a host cannot kill itself."""


@dataclass
class PrivateDisks:
    """The disks of hosts h1 and h2. On each host its own one is at `mount`, with a copy of the corpus."""

    tiny: Tiny
    folder: Path

    def __post_init__(self) -> None:
        self.mount = self.folder / "disk"
        self.mount.mkdir()
        for host in (1, 2):
            shutil.copytree(self.tiny.folder, self.find(host) / "text")

    def find(self, host: int) -> Path:
        """Where the test sees the disk of a host."""
        return self.folder / f"disk-of-h{host}"

    def run(self, host: int = 1) -> Path:
        return self.find(host) / "runs" / "first"

    def make_words(self, *settings: object, run: str | None = None) -> list[str]:
        text = self.mount / "text"
        places = [f"data.folder={text}", f"data.corpus={text / 'corpus'}"]
        words = ["train", self.tiny.config, *places, *settings, "--run", run or self.mount / "runs" / "first"]
        return [str(word) for word in words]

    @contextmanager
    def start(
        self, network: EmulatedNetwork, words: list[str], fault: str = "", torchrun: bool = False
    ) -> Iterator[list[subprocess.Popen[str]]]:
        """Starts one worker on every host of the network."""
        with ExitStack() as stack:
            processes = []
            for rank, host in enumerate(network.members):
                own = {"LOCKSTEP_FAULT": fault, "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
                own["LOCKSTEP_CACHE"] = str(self.mount / "cache")
                program = [sys.executable, "-m", "lockstep"]
                if torchrun:
                    program = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--nnodes"]
                    program += [
                        str(len(network.members)),
                        "--node-rank",
                        str(rank),
                        "--master-addr",
                        network.members[0].name,
                    ]
                    program += ["--master-port", "29400", "-m", "lockstep", "--"]
                    own["GLOO_SOCKET_IFNAME"] = "eth0"
                else:
                    own |= make_rank_environment(rank, network)
                mount = ["sh", "-c", MOUNT, str(self.find(int(host.name[1:]))), str(self.mount)]
                command = host.command([*mount, *program, *words])
                pipe = subprocess.PIPE
                process = subprocess.Popen(command, env=os.environ | own, stdout=pipe, stderr=pipe, text=True)
                stack.callback(process.communicate)
                stack.callback(process.kill)
                processes.append(process)
            yield processes

    def train(
        self,
        network: EmulatedNetwork,
        words: list[str],
        code: int | None = 0,
        fault: str = "",
        torchrun: bool = False,
    ) -> list[str]:
        """Trains to the end; returns what each host said."""
        with self.start(network, words, fault, torchrun) as processes:
            said = ["".join(process.communicate(timeout=200)) for process in processes]
            codes = [process.returncode for process in processes]
        assert code is None or codes == [code] * len(codes), "\n\n".join(said)
        return said
