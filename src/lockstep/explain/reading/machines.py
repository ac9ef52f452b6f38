"""What the samplers saw of the machines: processors, memory, network interfaces, GPUs. All of it may be missing."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lockstep.explain.reading.record import Record
from lockstep.run.journal import Line


@dataclass(frozen=True)
class MachineSample:
    """What went through an interface in the `seconds` before `time`."""

    time: float
    seconds: float
    sent: float
    received: float


@dataclass
class Interface:
    name: str
    link_bits: float | None = None
    samples: list[MachineSample] = field(default_factory=list)

    @property
    def sent_bits(self) -> float:
        """Mean rate, bits per second."""
        seconds = sum(sample.seconds for sample in self.samples)
        return 8 * sum(sample.sent for sample in self.samples) / seconds if seconds else 0.0


@dataclass
class Gpu:
    name: str
    utilisation: list[float] = field(default_factory=list)
    sm_activity: list[float] = field(default_factory=list)
    memory_used: list[float] = field(default_factory=list)
    memory_total: float | None = None
    watts: list[float] = field(default_factory=list)


@dataclass
class HostSamples:
    name: str
    cores_busy: list[float] = field(default_factory=list)  # mean share of all cores, per sample
    cores: int = 0
    memory_used: list[float] = field(default_factory=list)
    memory_total: float | None = None
    interfaces: dict[str, Interface] = field(default_factory=dict)
    gpus: dict[int, Gpu] = field(default_factory=dict)

    def busiest(self, local: bool) -> Interface | None:
        """The interface that sent most; with workers elsewhere the loopback only when there is nothing else."""
        every = list(self.interfaces.values())
        real = every if local else [one for one in every if one.name != "lo" and one.sent_bits] or every
        return max(real, key=lambda one: one.sent_bits, default=None)


@dataclass
class Machines:
    local: bool  # are all workers on one machine?
    hosts: dict[str, HostSamples] = field(default_factory=dict)
    cpu: dict[int, float] = field(default_factory=dict)  # cores that each worker used, mean
    resident: dict[int, float] = field(default_factory=dict)  # most bytes of memory that each worker had


def machines(record: Record) -> Machines:
    found = Machines(local=len(set(record.hosts)) <= 1)
    for rank, worker in record.workers.items():
        cpu, resident = list[float](), list[float]()
        for line in worker.of("system"):
            process = _dict(line.get("process"))
            cpu += _numbers(process.get("cpu"))
            resident += _numbers(process.get("resident"))
            _add(found.hosts, line)
        if cpu:
            found.cpu[rank] = float(np.mean(cpu))
        if resident:
            found.resident[rank] = max(resident)
    return found


def links(record: Record) -> list[Line]:
    """Measured probes between hosts."""
    return [line for worker in record.workers.values() for line in worker.of("link")]


def _add(hosts: dict[str, HostSamples], line: Line) -> None:
    host = hosts.setdefault(str(line.get("host", "?")), HostSamples(str(line.get("host", "?"))))
    cores = _numbers(*line["cores"]) if isinstance(line.get("cores"), list) else []
    if cores:
        host.cores_busy.append(float(np.mean(cores)))
        host.cores = len(cores)
    memory = _dict(line.get("memory"))
    host.memory_used += _numbers(memory.get("used"))
    host.memory_total = next(iter(_numbers(memory.get("total"))), host.memory_total)
    seconds = next(iter(_numbers(line.get("seconds"))), 0.0)
    for name, facts in _dict(line.get("network")).items():
        facts = _dict(facts)
        interface = host.interfaces.setdefault(name, Interface(name))
        interface.link_bits = next(iter(_numbers(facts.get("link_bits"))), interface.link_bits)
        moved = _numbers(facts.get("sent"), facts.get("received"))
        if len(moved) == 2 and seconds > 0:
            interface.samples.append(MachineSample(float(line["time"]), seconds, *moved))
    for facts in _list(line.get("gpus")):
        index = next(iter(_numbers(facts.get("index"))), 0.0)
        gpu = host.gpus.setdefault(int(index), Gpu(str(facts.get("name", "GPU"))))
        for name in ("utilisation", "sm_activity", "memory_used", "watts"):
            getattr(gpu, name).extend(_numbers(facts.get(name)))
        gpu.memory_total = next(iter(_numbers(facts.get("memory_total"))), gpu.memory_total)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Iterator[dict[str, Any]]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else iter(())


def _numbers(*values: Any) -> list[float]:
    return [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
