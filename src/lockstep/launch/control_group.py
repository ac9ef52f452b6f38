"""What the control group of a process says: frozen, throttled, out of memory. Versions 1 and 2 of cgroups."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PROCESSES = Path("/proc")
UNIFIED = ""
"""The name of version 2 in the list of a process's control groups."""


@dataclass(frozen=True)
class ControlGroup:
    """The folders of a process's control groups by controller: the innermost group first, then those around it."""

    levels: Mapping[str, tuple[Path, ...]]

    @property
    def is_frozen(self) -> bool:
        state = self._read_innermost("freezer", "freezer.state").strip()
        return state == "FROZEN" or "frozen 1" in self._read_innermost(UNIFIED, "cgroup.events")

    @property
    def throttled_seconds(self) -> float:
        """Seconds for which its processes waited because the group had used up its share of processor time."""
        units = (("cpu", "throttled_time", 1e-9), (UNIFIED, "throttled_usec", 1e-6))
        return sum(
            _parse(_read_text(folder / "cpu.stat")).get(name, 0) * unit
            for controller, name, unit in units
            for folder in self.levels.get(controller, ())
        )

    @property
    def cores(self) -> float | None:
        """How many cores its processes may keep busy on average; None without a limit."""
        limits = [
            *(_read_quota(folder) for folder in self.levels.get("cpu", ())),
            *(_read_unified_quota(folder) for folder in self.levels.get(UNIFIED, ())),
        ]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def free_memory(self) -> int | None:
        """The bytes that its processes may still take; None without a limit. Caches of files count as free."""
        free = [
            limit - used + _parse(_read_text(folder / "memory.stat")).get(cache, 0)
            for controller, most, current, cache in (
                ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
                (UNIFIED, "memory.max", "memory.current", "inactive_file"),
            )
            for folder in self.levels.get(controller, ())
            if (limit := _read_number(folder / most)) is not None
            and (used := _read_number(folder / current)) is not None
        ]
        return min(free, default=None)

    @property
    def memory_kills(self) -> int | None:
        """How many of its processes the kernel has killed because memory ran out; None where nothing counts them."""
        for controller, name in (("memory", "memory.oom_control"), (UNIFIED, "memory.events")):
            counts = _parse(self._read_innermost(controller, name))
            if "oom_kill" in counts:
                return counts["oom_kill"]
        return None

    def _read_innermost(self, controller: str, name: str) -> str:
        """Reads a file of the innermost group that has it: a container may not show its own group."""
        return next(filter(None, (_read_text(folder / name) for folder in self.levels.get(controller, ()))), "")


def find_control_group(pid: int, processes: Path = PROCESSES, root: Path = ROOT) -> ControlGroup:
    """Returns the control groups of a process; none when it is gone."""
    return _parse_groups(_read_text(processes / str(pid) / "cgroup"), root)


@lru_cache(maxsize=256)
def _parse_groups(text: str, root: Path) -> ControlGroup:
    """Takes half a millisecond for a text that is new."""
    levels: dict[str, tuple[Path, ...]] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            base = root / (controller or "unified")
            if controller == UNIFIED and not base.exists():
                base = root  # version 2 alone
            inner = base / path.strip("/")
            levels[controller] = tuple(folder for folder in (inner, *inner.parents) if folder.is_relative_to(base))
    return ControlGroup(levels)


def count_memory_kills() -> int | None:
    """Returns how many processes of this machine the kernel has killed because memory ran out."""
    return _parse(_read_text(PROCESSES / "vmstat")).get("oom_kill")


def _read_quota(folder: Path) -> float | None:
    quota, period = (_read_number(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return quota / period if quota is not None and period else None


def _read_unified_quota(folder: Path) -> float | None:
    quota, _, period = _read_text(folder / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.strip().isdigit() else None


def _read_number(path: Path) -> int | None:
    """Reads a file with a number; None where it is missing or means that there is no limit."""
    text = _read_text(path).strip()
    return int(text) if text.isdigit() else None


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _parse(text: str) -> dict[str, int]:
    """Reads lines with a name and a whole number."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
