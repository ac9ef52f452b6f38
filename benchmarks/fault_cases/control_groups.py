"""Control groups, version 1 or 2, that limit one process; and a program that keeps a core busy."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
BURNER = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: sum(range(100000))"


class ControlGroup:
    """A group of its own under one controller, `cpu` or `memory`."""

    def __init__(self, controller: str) -> None:
        self._is_first_version = (ROOT / controller).is_dir()
        parent = ROOT / controller if self._is_first_version else ROOT
        if not self._is_first_version:
            (ROOT / "cgroup.subtree_control").write_text(f"+{controller}")
        self._controller = controller
        self._folder = parent / f"lockstep-faults-{os.getpid()}"
        self._folder.mkdir()

    def limit_cores(self, cores: float) -> None:
        period = 100_000
        quota = int(cores * period)
        if self._is_first_version:
            (self._folder / "cpu.cfs_period_us").write_text(str(period))
            (self._folder / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self._folder / "cpu.max").write_text(f"{quota} {period}")

    def limit_memory(self, size: int) -> None:
        """Limits the memory that processes take from now on: what they have already counts for their group before."""
        name = "memory.limit_in_bytes" if self._is_first_version else "memory.max"
        (self._folder / name).write_text(str(size))

    def add(self, pid: int) -> None:
        (self._folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Moves the processes back, and removes the group."""
        parent = self._folder.parent / "cgroup.procs"
        for pid in (self._folder / "cgroup.procs").read_text().split():
            with suppress(OSError):  # it has ended
                parent.write_text(pid)
        with suppress(OSError):
            self._folder.rmdir()


def keep_core_busy(core: int) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", BURNER, str(core)], text=True)
