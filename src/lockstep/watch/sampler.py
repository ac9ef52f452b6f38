"""What the machine does while a run trains: a thread that looks now and then.

Every worker tells of itself, and one worker of each host tells of the host. Sampling never ends a training: a source
that fails is left out from then on, and the line says so once.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lockstep.run.journal import Journal, Line

T = TypeVar("T")
FIRST_SECONDS = 1.0
SHORTEST_SECONDS = 0.1
"""The kernel counts processor time in hundredths of a second: a shorter interval says nothing."""
Source = Callable[[float], Any]
"""Seconds since it was last asked -> what happened meanwhile."""


class Process:
    """Cores this worker kept busy, and its memory."""

    def __init__(self) -> None:
        import psutil

        self._process = psutil.Process()
        self._before = self._used()

    def _used(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system

    def __call__(self, seconds: float) -> dict[str, float]:
        before, self._before = self._before, self._used()
        return {"cpu": (self._before - before) / seconds, "resident": self._process.memory_info().rss}


class Cores:
    """Share of the time that each core was busy, with whatever program."""

    def __init__(self) -> None:
        import psutil

        self._shares = psutil.cpu_percent
        self._shares(percpu=True)  # counts from here

    def __call__(self, seconds: float) -> list[float]:
        return [round(percent / 100, 3) for percent in self._shares(percpu=True)]


def memory(seconds: float) -> dict[str, int]:
    import psutil

    found = psutil.virtual_memory()
    return {"used": found.total - found.available, "total": found.total}


class Disk:
    """Bytes that all disks together read and wrote."""

    def __init__(self) -> None:
        self._before = self._counted()

    def _counted(self) -> tuple[int, int]:
        import psutil

        counters = psutil.disk_io_counters()
        if counters is None:
            raise LookupError("the kernel tells nothing of disks here")
        return counters.read_bytes, counters.write_bytes

    def __call__(self, seconds: float) -> dict[str, int]:
        before, self._before = self._before, self._counted()
        return {"read": self._before[0] - before[0], "written": self._before[1] - before[1]}


class NetworkCounters:
    """Bytes that passed each interface; one that never carried any is not told of."""

    def __init__(self) -> None:
        self._before = self._counted()
        self._used: dict[str, int | None] = {}  # interfaces that carried something, with their link speed

    def _counted(self) -> dict[str, tuple[int, int]]:
        import psutil

        return {name: (n.bytes_sent, n.bytes_recv) for name, n in psutil.net_io_counters(pernic=True).items()}

    def __call__(self, seconds: float) -> dict[str, Any]:
        before, self._before = self._before, self._counted()
        passed = {}
        for name, now in self._before.items():
            sent, received = (a - b for a, b in zip(now, before.get(name, now), strict=True))
            if name not in self._used and (sent or received):
                self._used[name] = link_bits(name)
            if name in self._used:
                passed[name] = {"sent": sent, "received": received, "link_bits": self._used[name]}
        return passed


def link_bits(interface: str) -> int | None:
    """Bits per second that an interface says it can carry; many virtual ones don't know."""
    try:
        megabits = int(Path("/sys/class/net", interface, "speed").read_text())
    except (OSError, ValueError):
        return None
    return megabits * 1_000_000 if megabits > 0 else None


def _gpus() -> Source:
    from lockstep.watch.gpus import Gpus

    return Gpus()


OF_WORKER: dict[str, Callable[[], Source]] = {"process": Process}
OF_HOST: dict[str, Callable[[], Source]] = {
    "cores": Cores,
    "memory": lambda: memory,
    "disk": Disk,
    "network": NetworkCounters,
    "gpus": _gpus,
}


class Sampler:
    """Writes a `system` line every `seconds`: the first soon, the last when it is closed. `show` gets every line too.
    `own` in a line is the processor time that sampling took since the line before."""

    def __init__(
        self,
        journal: Journal,
        seconds: float,
        host: str,
        sources: dict[str, Callable[[], Source]],
        show: Callable[[Line], None] | None = None,
    ) -> None:
        self._journal, self._seconds, self._host, self._show = journal, seconds, host, show
        self._makers, self._sources = sources, dict[str, Source]()
        self._failed: dict[str, str] = {}
        self._own = 0.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lockstep-sampler", daemon=True)
        if seconds > 0:
            self._thread.start()

    def _run(self) -> None:
        for name, make in self._makers.items():
            source = self._tried(name, make)
            if source is not None:
                self._sources[name] = source
        self._last = time.perf_counter()
        pause = min(FIRST_SECONDS, self._seconds)
        try:
            while not self._closing.wait(pause):
                self._sample()
                pause = self._seconds
            if time.perf_counter() - self._last > SHORTEST_SECONDS:
                self._sample()
        except Exception:  # the journal is closed or its disk full: the loop finds that out itself
            return

    def _sample(self) -> None:
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        facts: Line = {"seconds": seconds, "host": self._host}
        for name, source in list(self._sources.items()):
            value = self._tried(name, partial(source, seconds))
            if value is not None:
                facts[name] = value
        if self._failed:
            facts["left_out"], self._failed = self._failed, {}
        spent, self._own = self._own, time.thread_time()
        facts["own"] = self._own - spent
        self._journal.write("system", **facts)
        if self._show is not None:
            self._show(facts)

    def _tried(self, name: str, action: Callable[[], T]) -> T | None:
        try:
            return action()
        except Exception as error:  # whatever it is, training goes on
            self._sources.pop(name, None)
            self._failed[name] = f"{type(error).__name__}: {error}"
            return None

    def close(self) -> None:
        """Takes the last sample. A source that hangs is not waited for."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)


def scalars(line: Line) -> dict[str, float]:
    """A `system` line as TensorBoard's scalars. Bytes per second instead of bytes, so that intervals may differ."""
    seconds = line["seconds"]
    values: dict[str, float | None] = {}
    if process := line.get("process"):
        values |= {"worker/cores": process["cpu"], "worker/resident": process["resident"]}
    if cores := line.get("cores"):
        values["host/cores_busy"] = sum(cores)
    if memory := line.get("memory"):
        values["host/memory_used"] = memory["used"]
    for name in ("read", "written") if line.get("disk") else ():
        values[f"disk/{name}_per_second"] = line["disk"][name] / seconds
    for interface, passed in line.get("network", {}).items():
        values |= {f"network/{interface}/{name}_per_second": passed[name] / seconds for name in ("sent", "received")}
    for gpu in line.get("gpus", ()):
        for name in ("utilisation", "memory_used", "watts", "sm_activity"):
            values[f"gpu/{gpu['index']}/{name}"] = gpu[name]
    return {name: value for name, value in values.items() if value is not None}
