"""Whether the kernel killed a process because memory ran out."""

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from lockstep.launch.control_group import ControlGroup, count_memory_kills, find_control_group

LOOK_SECONDS = 2.0
RECENT_SECONDS = 120.0
KERNEL_LOG = Path("/dev/kmsg")


class MemoryKills:
    """Counts the kernel's out-of-memory kills from now on, on the machine and in the control groups of some processes."""

    def __init__(self) -> None:
        self._machine = count_memory_kills()
        self._groups: dict[int, tuple[ControlGroup, int | None]] = {}  # by process, with the kills at the first look
        self._last_look = 0.0

    def look(self, pids: Iterable[int]) -> None:
        """Counts in the control groups of these processes, now and then: a dead process has no group any more."""
        if time.monotonic() - self._last_look < LOOK_SECONDS:
            return
        self._last_look = time.monotonic()
        for pid in pids:
            group = find_control_group(pid)
            if group.levels:
                before = self._groups.get(pid)
                self._groups[pid] = (group, group.memory_kills) if before is None or before[0] != group else before

    def judge(self, pid: int) -> str:
        """Returns established or supported if the kernel killed this process because memory ran out, `no` if it has killed
        nothing, and unknown where it does not say."""
        group, before = self._groups.get(pid, (None, None))
        now = None if group is None else group.memory_kills
        if _is_in_kernel_log(pid) or (before is not None and now is not None and now > before):
            return "established"
        machine = count_memory_kills()
        if machine is None or self._machine is None:
            return "unknown"
        return "supported" if machine > self._machine else "no"


def _is_in_kernel_log(pid: int) -> bool:
    """Whether the kernel's log says that it killed this process lately. Only root may read it, and in a container processes
    have other numbers."""
    try:
        log = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        while record := os.read(log, 8192):
            facts, _, text = record.decode(errors="replace").partition(";")
            age = time.monotonic() - int(facts.split(",")[2]) / 1e6
            if age < RECENT_SECONDS and re.search(rf"Killed process {pid} \(", text):
                return True
    except (OSError, ValueError, IndexError):  # the end of the log is an error too
        return False
    finally:
        os.close(log)
    return False
