"""What the workers sent to each other, how fast, and how long they waited for it."""

from dataclasses import dataclass

import numpy as np

from lockstep.explain.measures.bottleneck import count_hosts
from lockstep.explain.reading.machines import Machines, list_link_probes
from lockstep.explain.reading.measured_steps import MeasuredSteps
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column


@dataclass(frozen=True)
class ExchangeTraffic:
    bytes_per_step: float  # of one worker, mean
    bytes_of_sums: float  # part of `bytes_per_step` that synchronized batch norm
    seconds_in_flight: float  # mean per step, for the worker that waited least
    exposed: float  # mean share of a step that workers waited in merge
    hosts: int  # 0 where it is not known
    link_bits: float | None
    probe_bits: float | None
    latency: float | None
    wire_bits: float | None  # measured at the interface, mean over the run

    @property
    def bits(self) -> float | None:
        """Bits per second that a worker sent while gradients were in flight."""
        sent = self.bytes_per_step - self.bytes_of_sums
        return 8 * sent / self.seconds_in_flight if self.seconds_in_flight > 0 and sent else None

    @property
    def is_local(self) -> bool:
        return self.hosts == 1


def measure_traffic(record: Record, machines: Machines) -> ExchangeTraffic | None:
    """Returns None when no step was measured."""
    measured = record.measured
    if not measured.count:
        return None
    workers = [steps for steps in measured.workers.values() if len(steps)]
    probes = list_link_probes(record)
    interfaces = [host.find_busiest(machines.local) for host in machines.hosts.values()]
    busiest = [interface for interface in interfaces if interface is not None]

    def find_first(name: str) -> float | None:
        return next((float(line[name]) for line in probes if isinstance(line.get(name), int | float)), None)

    by_interface = next((one.link_bits for one in busiest if one.name != "lo" and one.link_bits), None)
    return ExchangeTraffic(
        bytes_per_step=float(np.mean([np.nan_to_num(steps.bytes_sent).mean() for steps in workers])),
        bytes_of_sums=float(np.mean([steps.sums_bytes.mean() for steps in workers])),
        seconds_in_flight=float(measure_in_flight(measured).mean()),
        exposed=float(np.mean([steps.merge.sum() / steps.seconds.sum() for steps in workers])),
        hosts=count_hosts(record),
        link_bits=find_first("link_bits") or by_interface,
        probe_bits=find_first("probe_bits"),
        latency=find_first("latency_seconds"),
        wire_bits=max((interface.sent_bits for interface in busiest), default=None),
    )


def measure_in_flight(measured: MeasuredSteps) -> Column:
    """Returns the seconds of each step in which gradients were in flight, as the worker that waited least measured them.
    The other workers cannot tell this from waiting for a slower worker."""
    if not measured.lockstep:
        return np.nan_to_num(measured.primary.in_flight)
    return np.nan_to_num(measured.stack("in_flight")).min(0)


def explain_no_traffic(measured: MeasuredSteps) -> str:
    return "one worker trained alone" if len(measured.workers) == 1 else "the workers exchanged nothing"
