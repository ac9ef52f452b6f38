"""What the operating system says about a process: its state, what it waits for, its processor time, its control group."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from lockstep.launch.control_group import find_control_group

TICKS = os.sysconf("SC_CLK_TCK")
BUSY_SECONDS = 0.25
"""A process that used so much processor time between two looks computes, also if it sleeps at the moment."""
THROTTLED_SECONDS = 0.25
"""A process whose control group waited for so long between two looks is slowed by it."""
MEMORY_PRESSURE = 20.0
"""Memory is short if all programs waited for it for this share of the last ten seconds, in percent."""
WAITS = (
    (r"nanosleep", "for a timer"),
    (r"futex", "for another thread"),
    (r"ep_poll|poll_schedule|do_select|sk_wait|tcp_|unix_stream|inet_", "for the network"),
    (r"pipe|anon_pipe", "for a pipe"),
    (r"do_wait|kernel_wait", "for another process"),
    (r"flock|posix_lock|locks_lock", "for a lock on a file"),
)
"""What the kernel's function in which a process sleeps means."""


@dataclass(frozen=True)
class ProcessState:
    """A look at a process. `letter` is that of /proc: R runs, S sleeps, D waits for a disk, T is stopped, Z is dead."""

    letter: str  # empty: it is gone
    cpu_seconds: float = 0.0
    is_frozen: bool = False  # by its cgroup
    throttled_seconds: float = 0.0  # of its cgroup
    waits: str = ""  # what it sleeps for, such as "for a timer"; empty where that is not known
    tracer: str = ""  # the debugger that has stopped it

    @property
    def is_halted(self) -> bool:
        """Is it certain that this process cannot continue by itself?"""
        return self.is_frozen or self.letter in ("T", "t", "Z", "X", "")

    def is_busy(self, before: "ProcessState | None") -> bool:
        """Did it compute since the look before?"""
        return self.letter == "R" or (before is not None and self.cpu_seconds - before.cpu_seconds > BUSY_SECONDS)

    def is_throttled(self, before: "ProcessState | None") -> bool:
        return before is not None and self.throttled_seconds - before.throttled_seconds > THROTTLED_SECONDS

    def describe(self, before: "ProcessState | None" = None, holds_interpreter: bool = False) -> str:
        """Returns what the system says, in the middle of a sentence. `before` is a look of a moment ago."""
        if self.is_frozen:
            return "its cgroup is frozen"
        if self.letter == "T":
            return "it is stopped (SIGSTOP)"
        if self.letter == "t":
            return f"it is stopped by a debugger{f' ({self.tracer})' * bool(self.tracer)}"
        if self.letter in ("Z", "X", ""):
            return "its process is gone"
        throttled = ", and its cgroup throttles it" if self.is_throttled(before) else ""
        if self.letter == "D":
            return f"it waits for a disk or a file system{throttled}"
        if self.is_busy(before):
            loop = "an endless loop that holds the interpreter" if holds_interpreter else "an endless loop?"
            return f"it computes without progress ({loop}){throttled}"
        holds = " and holds the interpreter (GIL)" if holds_interpreter else ""
        return f"it sleeps or waits{f' {self.waits}' * bool(self.waits)}{holds}{throttled}"


def read_state(pid: int) -> ProcessState:
    folder = Path(f"/proc/{pid}")
    try:
        fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return ProcessState("")
    group = find_control_group(pid)
    return ProcessState(
        letter=fields[0],
        cpu_seconds=(int(fields[11]) + int(fields[12])) / TICKS,
        is_frozen=group.is_frozen,
        throttled_seconds=group.throttled_seconds,
        waits=_name_wait(folder) if fields[0] == "S" else "",
        tracer=_name_tracer(folder) if fields[0] == "t" else "",
    )


def _name_wait(folder: Path) -> str:
    """Names what the main thread of a process sleeps for."""
    try:
        function = (folder / "wchan").read_text()
    except OSError:
        return ""
    return next((what for pattern, what in WAITS if re.search(pattern, function)), "")


def _name_tracer(folder: Path) -> str:
    try:
        facts = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
        tracer = int(facts["TracerPid"])
        return f"{Path(f'/proc/{tracer}/comm').read_text().strip()}, process {tracer}"
    except (OSError, ValueError, KeyError):
        return ""


def describe_memory(pressure: Path = Path("/proc/pressure/memory")) -> str:
    """Returns that memory is short on this machine, if it is."""
    try:
        full = re.search(r"^full avg10=([\d.]+)", pressure.read_text(), re.MULTILINE)
    except OSError:
        return ""
    percent = float(full[1]) if full else 0.0
    return (
        f"memory is short: all programs waited for it {percent:.0f} % of the time" if percent > MEMORY_PRESSURE else ""
    )
