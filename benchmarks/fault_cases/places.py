"""Where a trial trains, and how a fault comes over it from outside.

A place is a context manager. It starts the training, learns the processes of the workers, injects the fault once and heals
what it has done.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from fault_cases.control_groups import ControlGroup, keep_core_busy
from lockstep.lab.emulated_network import INTERFACE, EmulatedNetwork, _run_ip

Process = subprocess.Popen[str]


class CannotBeMade(Exception):
    """This machine cannot make the fault. The trial does not count."""


class Place:
    """A temporary folder, with two workers on this machine. Nothing comes from outside."""

    end_seconds = 60.0
    """How long a trial may last after its fault."""

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="lockstep-faults-"))
        self.run = self.folder / "run"
        try:
            self.build()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()
        self.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, words: Sequence[str], environment: dict[str, str], errors: IO[str]) -> list[Process]:
        command = [sys.executable, "-m", "lockstep", "train", *words, "--workers", "2", "--run", str(self.run)]
        return [_start(command, environment, errors)]

    def build(self) -> None:
        """Makes what the trial needs."""

    def remove(self) -> None:
        """Removes what `build` has made."""

    def settle(self, workers: Sequence[int]) -> None:
        """Called once, when the processes of both workers are known and before the step of the fault."""

    def inject(self, workers: Sequence[int]) -> None:
        """Called once, at the step of the fault."""

    def heal(self) -> None:
        """Ends the fault, when it has been named or the time is over."""


def _start(command: list[str], environment: dict[str, str], errors: IO[str]) -> Process:
    return subprocess.Popen(
        command,
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        text=True,
        start_new_session=True,
    )


def run_tool(*words: str) -> None:
    """Runs a program of the system; a fault that it cannot make does not count."""
    try:
        subprocess.run(words, check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", b"") or str(error).encode()
        raise CannotBeMade(f"{words[0]}: {detail.decode(errors='replace').strip()}") from None


class FullDisk(Place):
    """The run folder is on a small file system in memory, which is filled."""

    def build(self) -> None:
        self.run.mkdir()
        run_tool("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(self.run))

    def inject(self, workers: Sequence[int]) -> None:
        with suppress(OSError), (self.run / "filler").open("wb", buffering=0) as file:
            while file.write(b"\0" * 65536):
                pass

    def remove(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.run)], capture_output=True, check=False)


class HangingDisk(Place):
    """The run folder is on a file system in a file, which is frozen: whoever writes there waits for ever."""

    is_frozen = False

    def build(self) -> None:
        image = self.folder / "image"
        with image.open("wb") as file:
            file.truncate(256 << 20)
        self.run.mkdir()
        run_tool("mkfs.ext4", "-q", str(image))
        run_tool("mount", "-o", "loop", str(image), str(self.run))
        run_tool("rm", "-r", str(self.run / "lost+found"))

    def inject(self, workers: Sequence[int]) -> None:
        self.is_frozen = True
        run_tool("fsfreeze", "--freeze", str(self.run))

    def heal(self) -> None:
        if self.is_frozen:
            self.is_frozen = False
            subprocess.run(["fsfreeze", "--unfreeze", str(self.run)], capture_output=True, check=False)

    def remove(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.run)], capture_output=True, check=False)


class FifthOfACore(Place):
    """Worker 1 gets a fifth of a core."""

    end_seconds = 180.0

    def build(self) -> None:
        self.group = ControlGroup("cpu")

    def inject(self, workers: Sequence[int]) -> None:
        self.group.limit_cores(0.2)
        self.group.add(workers[1])

    def remove(self) -> None:
        self.group.remove()


class LittleMemory(Place):
    """Worker 1 may use little more memory than it has. The fault inside takes a GiB."""

    def build(self) -> None:
        self.group = ControlGroup("memory")

    def settle(self, workers: Sequence[int]) -> None:
        self.group.limit_memory(256 << 20)
        self.group.add(workers[1])

    def remove(self) -> None:
        self.group.remove()


class SharedCore(Place):
    """Each worker has a core of its own, and other programs take half of that of worker 1."""

    end_seconds = 180.0
    burner: Process | None = None

    def settle(self, workers: Sequence[int]) -> None:
        for worker, core in zip(workers, sorted(os.sched_getaffinity(0)), strict=False):
            for task in Path(f"/proc/{worker}/task").iterdir():
                os.sched_setaffinity(int(task.name), {core})

    def inject(self, workers: Sequence[int]) -> None:
        self.burner = keep_core_busy(sorted(os.sched_getaffinity(0))[1])

    def remove(self) -> None:
        if self.burner is not None:
            self.burner.kill()
            self.burner.wait()


class Hosts(Place):
    """Two emulated hosts with a worker each, which torchrun starts."""

    def build(self) -> None:
        self.network = EmulatedNetwork(2, "1gbit")
        self.network.__enter__()

    def remove(self) -> None:
        self.network.__exit__(None, None, None)

    def start(self, words: Sequence[str], environment: dict[str, str], errors: IO[str]) -> list[Process]:
        self.hosts = []
        for number, host in enumerate(self.network.members):
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(number)]
            torchrun += ["--nproc-per-node", "1", "--master-addr", "h1", "--master-port", "29400", "-m", "lockstep"]
            command = host.command([*torchrun, "--", "train", *words, "--run", str(self.run)])
            own = {"GLOO_SOCKET_IFNAME": INTERFACE, "OMP_NUM_THREADS": "1"}
            self.hosts.append(_start(command, environment | own, errors))
        return self.hosts

    def name_switch(self) -> str:
        return self.network.members[0].namespace.rpartition("-")[0] + "-switch"


class LinkDown(Hosts):
    """The cable of host h2 is pulled."""

    def inject(self, workers: Sequence[int]) -> None:
        _run_ip("-n", self.name_switch(), "link", "set", "port2", "down")


class LinkDownOneWay(Hosts):
    """What host h2 sends to h1 is lost: it goes to a network address that nobody has."""

    def inject(self, workers: Sequence[int]) -> None:
        first, second = self.network.members
        words = ("neighbour", "replace", first.address, "lladdr", "02:00:00:00:00:99", "dev", INTERFACE)
        _run_ip("-n", second.namespace, *words, "nud", "permanent")


class SlowLink(Hosts):
    """The link of host h2 carries 1 Mbit/s in each direction."""

    end_seconds = 120.0

    def inject(self, workers: Sequence[int]) -> None:
        for namespace, interface in ((self.network.members[1].namespace, INTERFACE), (self.name_switch(), "port2")):
            shape = ("rate", "1mbit", "burst", "16kb", "latency", "50ms")
            run_tool("tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root", "tbf", *shape)


class FirstHostDead(Hosts):
    """All processes of host h1, where the rendezvous is, are killed."""

    def inject(self, workers: Sequence[int]) -> None:
        self.hosts[0].kill()
