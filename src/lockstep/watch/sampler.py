"""Samples the machine while a run trains, in a background thread.

Every worker samples its own process, and one worker of each host samples the host. Sampling never stops a training: a
source that fails is left out of the following samples, and one line names it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypedDict, TypeVar

from lockstep import stderr_log
from lockstep.run.journal import Journal, Line
from lockstep.watch.other_programs import OtherPrograms

T = TypeVar("T")
FIRST_SECONDS = 1.0
SHORTEST_SECONDS = 0.1
"""The kernel counts processor time in hundredths of a second: shorter intervals are too inaccurate."""
Source = Callable[[float], object]
"""Takes the seconds since its last sample; returns a sample that can be written as JSON."""


class ProcessUsage:
    """Samples the cores that this worker kept busy, and its memory."""

    def __init__(self) -> None:
        import psutil

        self._process = psutil.Process()
        self._before = self._read_cpu_seconds()

    def _read_cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system

    def __call__(self, seconds: float) -> dict[str, float]:
        before, self._before = self._before, self._read_cpu_seconds()
        return {"cpu": (self._before - before) / seconds, "resident": self._process.memory_info().rss}


class CoreUsage:
    """Samples the share of time that each core was busy with any program."""

    def __init__(self) -> None:
        import psutil

        self._cpu_percent = psutil.cpu_percent
        self._cpu_percent(percpu=True)  # the first sample counts from here

    def __call__(self, seconds: float) -> list[float]:
        return [round(percent / 100, 3) for percent in self._cpu_percent(percpu=True)]


def sample_memory(seconds: float) -> dict[str, int]:
    """Returns the used and the total memory of the host, in bytes."""
    import psutil

    memory = psutil.virtual_memory()
    return {"used": memory.total - memory.available, "total": memory.total}


class DiskCounters:
    """Samples the bytes that all disks together read and wrote."""

    def __init__(self) -> None:
        self._before = self._read_counters()

    def _read_counters(self) -> tuple[int, int]:
        import psutil

        counters = psutil.disk_io_counters()
        if counters is None:
            raise LookupError("the kernel has no disk counters")
        return counters.read_bytes, counters.write_bytes

    def __call__(self, seconds: float) -> dict[str, int]:
        before, self._before = self._before, self._read_counters()
        return {"read": self._before[0] - before[0], "written": self._before[1] - before[1]}


class InterfaceSample(TypedDict):
    """The bytes that an interface sent and received since the last sample, and its link speed in bits per second."""

    sent: int
    received: int
    link_bits: int | None


class NetworkCounters:
    """Samples the bytes of each interface. An interface without any traffic so far is left out."""

    def __init__(self) -> None:
        self._before = self._read_counters()
        self._used: dict[str, int | None] = {}  # interfaces with traffic, and their link speed

    def _read_counters(self) -> dict[str, tuple[int, int]]:
        import psutil

        return {name: (n.bytes_sent, n.bytes_recv) for name, n in psutil.net_io_counters(pernic=True).items()}

    def __call__(self, seconds: float) -> dict[str, InterfaceSample]:
        before, self._before = self._before, self._read_counters()
        samples = dict[str, InterfaceSample]()
        for name, now in self._before.items():
            sent, received = (a - b for a, b in zip(now, before.get(name, now), strict=True))
            if name not in self._used and (sent or received):
                self._used[name] = read_link_bits(name)
            if name in self._used:
                samples[name] = {"sent": sent, "received": received, "link_bits": self._used[name]}
        return samples


def read_link_bits(interface: str) -> int | None:
    """Returns the nominal bits per second of an interface. Many virtual ones have none."""
    try:
        megabits = int(Path("/sys/class/net", interface, "speed").read_text())
    except (OSError, ValueError):
        return None
    return megabits * 1_000_000 if megabits > 0 else None


def _make_gpus(uuids: Sequence[str]) -> Source:
    from lockstep.watch.gpus import Gpus

    return Gpus(uuids)


WORKER_SOURCES: dict[str, Callable[[], Source]] = {"process": ProcessUsage}


def list_host_sources(gpus: Sequence[str] | None) -> dict[str, Callable[[], Source]]:
    """Returns the sources of a host, where the run's workers have the GPUs with these UUIDs; none if another worker samples
    the host."""
    if gpus is None:
        return {}
    return {
        "cores": CoreUsage,
        "others": OtherPrograms,
        "memory": lambda: sample_memory,
        "disk": DiskCounters,
        "network": NetworkCounters,
        "gpus": partial(_make_gpus, gpus),
    }


class Sampler:
    """Writes a `system` line every `seconds`, the first after at most a second and the last at `close`. `show` gets every
    line too. `own` in a line is the processor time that sampling took since the previous line."""

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
        self._cpu_seconds = 0.0  # of the sampling thread
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lockstep-sampler", daemon=True)
        if seconds > 0:
            self._thread.start()

    def _run(self) -> None:
        for name, make in self._makers.items():
            source = self._try_source(name, make)
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
        except Exception:  # the journal is closed or its disk is full: the training loop reports that
            return

    def _sample(self) -> None:
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        facts: Line = {"seconds": seconds, "host": self._host}
        for name, source in list(self._sources.items()):
            value = self._try_source(name, partial(source, seconds))
            if value is not None:
                facts[name] = value
        if self._failed:
            facts["left_out"], self._failed = self._failed, {}
        before, self._cpu_seconds = self._cpu_seconds, time.thread_time()
        facts["own"] = self._cpu_seconds - before
        self._journal.write("system", **facts)
        if self._show is not None:
            self._show(facts)
        stderr_log.truncate_if_long()

    def _try_source(self, name: str, action: Callable[[], T]) -> T | None:
        """Returns the result of a source, or None when it fails; then it is left out from now on."""
        try:
            return action()
        except Exception as error:  # a failing source must not stop the training
            self._sources.pop(name, None)
            self._failed[name] = f"{type(error).__name__}: {error}"
            return None

    def close(self) -> None:
        """Takes the last sample. It does not wait for a source that hangs."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)


def to_scalars(line: Line) -> dict[str, float]:
    """Returns a `system` line as TensorBoard scalars. Bytes become bytes per second, because intervals may differ."""
    seconds = line["seconds"]
    values: dict[str, float | None] = {}
    if process := line.get("process"):
        values |= {"worker/cores": process["cpu"], "worker/resident": process["resident"]}
    if cores := line.get("cores"):
        values["host/cores_busy"] = sum(cores)
    if (others := line.get("others")) is not None:
        values["host/others_share"] = others
    if memory := line.get("memory"):
        values["host/memory_used"] = memory["used"]
    for name in ("read", "written") if line.get("disk") else ():
        values[f"disk/{name}_per_second"] = line["disk"][name] / seconds
    for interface, traffic in line.get("network", {}).items():
        values |= {f"network/{interface}/{name}_per_second": traffic[name] / seconds for name in ("sent", "received")}
    for gpu in line.get("gpus", ()):
        for name in ("utilisation", "memory_used", "watts", "sm_activity"):
            values[f"gpu/{gpu['index']}/{name}"] = gpu[name]
    return {name: value for name, value in values.items() if value is not None}
