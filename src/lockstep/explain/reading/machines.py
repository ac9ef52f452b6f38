"""What the samplers measured on the machines: processors, memory, network interfaces, GPUs. Any of it may be missing."""

from dataclasses import dataclass, field

import numpy as np

from lockstep.explain.reading.json_access import get_dict, get_number, list_dicts, list_numbers
from lockstep.explain.reading.record import Record
from lockstep.run.journal import Line


@dataclass(frozen=True)
class MachineSample:
    """Bytes that an interface sent and received in the `seconds` before `time`."""

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


@dataclass
class HostSamples:
    name: str
    cores_busy: list[float] = field(default_factory=list)  # mean share of all cores, per sample
    cores: int = 0
    interfaces: dict[str, Interface] = field(default_factory=dict)
    gpus: dict[int, Gpu] = field(default_factory=dict)

    def find_busiest(self, local: bool) -> Interface | None:
        """Returns the interface that sent most. The loopback counts when all workers are `local`, or when no other
        interface sent anything."""
        candidates = list(self.interfaces.values())
        if not local:
            candidates = [one for one in candidates if one.name != "lo" and one.sent_bits] or candidates
        return max(candidates, key=lambda interface: interface.sent_bits, default=None)


@dataclass
class Machines:
    local: bool  # whether all workers are on one machine
    hosts: dict[str, HostSamples] = field(default_factory=dict)
    cpu: dict[int, float] = field(default_factory=dict)  # by worker: mean number of cores it used
    resident: dict[int, float] = field(default_factory=dict)  # by worker: largest memory, bytes


def read_machines(record: Record) -> Machines:
    machines = Machines(local=len(set(record.hosts)) <= 1)
    for rank, worker in record.workers.items():
        cpu, resident = list[float](), list[float]()
        for line in worker.select_events("system"):
            process = get_dict(line.get("process"))
            cpu += list_numbers([process.get("cpu")])
            resident += list_numbers([process.get("resident")])
            _add(machines.hosts, line)
        if cpu:
            machines.cpu[rank] = float(np.mean(cpu))
        if resident:
            machines.resident[rank] = max(resident)
    return machines


def list_link_probes(record: Record) -> list[Line]:
    """Returns the `link` lines of all workers: probes between hosts."""
    return [line for worker in record.workers.values() for line in worker.select_events("link")]


def _add(hosts: dict[str, HostSamples], line: Line) -> None:
    """Adds one system sample to its host."""
    name = str(line.get("host", "?"))
    host = hosts.setdefault(name, HostSamples(name))
    cores = list_numbers(line["cores"]) if isinstance(line.get("cores"), list) else []
    if cores:
        host.cores_busy.append(float(np.mean(cores)))
        host.cores = len(cores)
    _add_traffic(host, line)
    for facts in list_dicts(line.get("gpus")):
        index = int(get_number(facts.get("index")) or 0)
        gpu = host.gpus.setdefault(index, Gpu(str(facts.get("name", "GPU"))))
        gpu.utilisation += list_numbers([facts.get("utilisation")])
        gpu.sm_activity += list_numbers([facts.get("sm_activity")])
        gpu.memory_used += list_numbers([facts.get("memory_used")])


def _add_traffic(host: HostSamples, line: Line) -> None:
    seconds = get_number(line.get("seconds")) or 0.0
    for name, value in get_dict(line.get("network")).items():
        facts = get_dict(value)
        interface = host.interfaces.setdefault(name, Interface(name))
        link_bits = get_number(facts.get("link_bits"))
        interface.link_bits = interface.link_bits if link_bits is None else float(link_bits)
        moved = list_numbers([facts.get("sent"), facts.get("received")])
        if len(moved) == 2 and seconds > 0:
            interface.samples.append(MachineSample(float(line["time"]), seconds, *moved))
