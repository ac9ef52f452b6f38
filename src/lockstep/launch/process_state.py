"""What the operating system says about a process: its state, its processor time, its cgroup."""

import os
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
BUSY_SECONDS = 0.25
"""A process that used so much processor time between two looks computes, also if it sleeps at the moment."""


@dataclass(frozen=True)
class ProcessState:
    """A look at a process. `letter` is that of /proc: R runs, S sleeps, D waits for a disk, T is stopped, Z is dead."""

    letter: str  # empty: it is gone
    cpu_seconds: float = 0.0
    is_frozen: bool = False  # by its cgroup

    @property
    def is_halted(self) -> bool:
        """Is it certain that this process cannot continue by itself?"""
        return self.is_frozen or self.letter in ("T", "t", "Z", "X", "")

    def describe(self, before: "ProcessState | None" = None) -> str:
        """Returns what the system says, in the middle of a sentence. `before` is a look of a moment ago."""
        if self.is_frozen:
            return "its cgroup is frozen"
        if self.letter in ("T", "t"):
            return "it is stopped (SIGSTOP or a debugger)"
        if self.letter in ("Z", "X", ""):
            return "its process is gone"
        if self.letter == "D":
            return "it waits for a disk or a file system"
        if self.letter == "R" or (before is not None and self.cpu_seconds - before.cpu_seconds > BUSY_SECONDS):
            return "it computes without progress (an endless loop, or another thread has the interpreter)"
        return "it sleeps or waits"


def read_state(pid: int) -> ProcessState:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return ProcessState("")
    return ProcessState(fields[0], (int(fields[11]) + int(fields[12])) / TICKS, _is_frozen(pid))


def _is_frozen(pid: int) -> bool:
    """Whether the cgroup of a process is frozen, in version 1 or 2 of cgroups."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        _, controllers, path = line.split(":", 2)
        try:
            if "freezer" in controllers.split(","):
                state = Path("/sys/fs/cgroup/freezer", path.lstrip("/"), "freezer.state").read_text()
                if state.strip() == "FROZEN":
                    return True
            elif not controllers:
                events = Path("/sys/fs/cgroup", path.lstrip("/"), "cgroup.events").read_text()
                if "frozen 1" in events:
                    return True
        except OSError:
            continue
    return False
