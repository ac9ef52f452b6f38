"""How much of the cores other programs use while a run trains."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.run import environment_variables

if TYPE_CHECKING:
    import psutil

CGROUPS = Path("/sys/fs/cgroup")
COUNTED_SECONDS = 0.1
"""Processor time that a kernel must have counted for its cores too. They count in ticks, so less may still be missing."""


class OtherPrograms:
    """Samples the share of this run's cores that other programs took.

    Everything that kept a core busy and is not a process of this run counts, also time that the host of a virtual machine
    took away. In a container the kernel may show the whole host: then these are programs outside of the container.
    """

    def __init__(self, root: int | None = None) -> None:
        """The run is `root` and everything below it, by default our launcher. Without a launcher, it is all processes with
        the rendezvous of this one."""
        if environment_variables.is_emulated_host():
            raise LookupError("an emulated host does not see the processes of the others")
        self._root = root or environment_variables.launcher_pid()
        self._is_own: dict[int, bool] = {}  # by process id, where another engine started the run
        self._cores = sorted(os.sched_getaffinity(self._root or 0))
        self._limit = min(read_quota(), float(len(self._cores)))
        self._before = self._read_seconds()

    def __call__(self, seconds: float) -> float:
        before, self._before = self._before, self._read_seconds()
        busy, own = (now - then for now, then in zip(self._before, before, strict=True))
        if busy <= 0 and own > COUNTED_SECONDS:
            raise LookupError("the kernel does not count the time of all programs")
        return compute_share(max(0.0, busy - own) / seconds, len(self._cores), self._limit)

    def _read_seconds(self) -> tuple[float, float]:
        """Returns the processor seconds of all programs on these cores, and those of this run."""
        import psutil

        cores = psutil.cpu_times(percpu=True)
        idle = ("idle", "iowait", "guest", "guest_nice")  # the time of guests is also part of `user` and `nice`
        busy = sum(
            seconds for core in self._cores for name, seconds in cores[core]._asdict().items() if name not in idle
        )
        return busy, sum(_read_process_seconds(process) for process in self._list_own())

    def _list_own(self) -> "list[psutil.Process]":
        import psutil

        rendezvous = environment_variables.rendezvous()
        if self._root is not None or rendezvous is None:
            root = psutil.Process(self._root)
            return [root, *root.children(recursive=True)]
        alive = {process.pid: process for process in psutil.process_iter()}
        for pid in alive.keys() - self._is_own.keys():
            self._is_own[pid] = _read_rendezvous(alive[pid]) == rendezvous
        return [process for pid, process in alive.items() if self._is_own[pid]]


def _read_process_seconds(process: "psutil.Process") -> float:
    """Returns the processor seconds of a process and of its children that have ended; 0 when it is gone."""
    import psutil

    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _read_rendezvous(process: "psutil.Process") -> tuple[str | None, str | None]:
    import psutil

    try:
        variables = process.environ()
    except (psutil.Error, OSError):  # it is gone, or belongs to somebody else
        return None, None
    return variables.get("MASTER_ADDR"), variables.get("MASTER_PORT")


def compute_share(others: float, cores: int, limit: float) -> float:
    """Returns the share of the cores that others took. `others` is the number of cores that they kept busy. A run that may
    use `limit` of `cores` cores loses only what is not left free for it."""
    return min(1.0, max(0.0, limit - (cores - others)) / limit)


def read_quota(cgroups: Path = CGROUPS, own: Path = Path("/proc/self/cgroup")) -> float:
    """Returns how many cores the control groups of this process allow; infinite without a limit."""
    quotas = [float("inf")]
    for line in own.read_text().splitlines() if own.exists() else ():
        _, controllers, path = line.split(":", 2)
        root = cgroups if not controllers else cgroups / "cpu"
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder = root / path.strip("/")
        for place in (folder, *folder.parents):
            if place.is_relative_to(root):
                quotas += _read_quota_of(place)
    return min(quotas)


def _read_quota_of(group: Path) -> list[float]:
    """Returns the limit of one control group, of version 2 or 1; an empty list where it has none."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return [int(quota) / int(period)] if int(quota) > 0 else []
    except (OSError, ValueError):  # no such file, or the word `max`
        return []
