"""How much processor time a process got, and how long it waited for more."""

from dataclasses import dataclass
from pathlib import Path

from lockstep.launch.control_group import find_control_group


@dataclass(frozen=True)
class ProcessorUse:
    """Seconds since the start of a process."""

    cpu_seconds: float = 0.0
    throttled_seconds: float = 0.0  # of its control group
    queues: tuple[tuple[int, float], ...] = ()  # seconds in which each of its threads was ready and had no core
    queued_seconds: float = 0.0  # of the thread that waited longest

    def since(self, before: "ProcessorUse") -> "ProcessorUse":
        """Returns the use since an earlier look."""
        queues = dict(before.queues)
        return ProcessorUse(
            cpu_seconds=self.cpu_seconds - before.cpu_seconds,
            throttled_seconds=self.throttled_seconds - before.throttled_seconds,
            queued_seconds=max((seconds - queues.get(thread, 0.0) for thread, seconds in self.queues), default=0.0),
        )


def read_use(pid: int) -> ProcessorUse:
    """Returns the use of a process; none when it is gone or the kernel does not count."""
    cpu, queues = 0.0, list[tuple[int, float]]()
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        try:
            running, waiting, _ = (thread / "schedstat").read_text().split()
        except (OSError, ValueError):
            continue
        cpu += int(running) / 1e9
        queues.append((int(thread.name), int(waiting) / 1e9))
    return ProcessorUse(cpu, find_control_group(pid).throttled_seconds, tuple(queues))
