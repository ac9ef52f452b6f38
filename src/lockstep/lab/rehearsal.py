"""A job on an emulated cluster: torchrun on every host, as on real machines, and what the links carried meanwhile."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.errors import LockstepError
from lockstep.explain.formatting import bits, milliseconds, share
from lockstep.explain.measures.bottleneck import find_bottleneck
from lockstep.explain.reading.measured_steps import MeasuredSteps
from lockstep.explain.reading.record import Record
from lockstep.explain.summary import summarise_record
from lockstep.lab.emulated_network import INTERFACE, EmulatedHost, EmulatedNetwork, rate_bits
from lockstep.launch.run_all import Program, run_all

PORT = 29400
COUNT_SECONDS = 0.5
"""Between two looks at the switch's counters."""
LOOKS = 4
"""So many lie within the measured steps, or what passed between two of them decides the figure."""


@dataclass(frozen=True)
class EmulatedCluster:
    hosts: int
    link: str | None  # rate of every port, both ways, in tc's words; None: as fast as this machine copies
    per_host: int = 1  # workers
    servers: int = 0  # each on one more host

    @property
    def workers(self) -> int:
        return self.hosts * self.per_host

    def text(self) -> str:
        """For a person."""
        each = f" x {self.per_host} workers" if self.per_host > 1 else ""
        holders = f" and {self.servers} of parameter servers" if self.servers else ""
        return f"{self.hosts} emulated hosts{each}{holders}, {self.link or 'unlimited links'}"


@dataclass(frozen=True)
class Rehearsal:
    """Means of the measured steps, without warm-up."""

    run: str
    cluster: str
    workers: int
    strategy: str
    steps: int  # measured
    step_seconds: float
    per_second: float
    unit: str
    phase_shares: dict[str, float]
    bytes_per_step: float  # that the busiest worker handed to the network, by its journal
    wire_bytes_per_step: float | None  # that left the busiest host, by the switch's counters; None: too short to tell
    under_way_seconds: float  # per step, in which something travelled
    wire_bits: float | None  # of the busiest host while something travelled
    link_bits: float | None
    bottleneck: str

    @property
    def link_share(self) -> float | None:
        """How much of the link's rate was used while something travelled."""
        return self.wire_bits / self.link_bits if self.wire_bits and self.link_bits else None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"link_share": self.link_share}

    def sentence(self) -> str:
        wire = "the steps were too short to tell what their links carried"
        if self.wire_bits is not None:
            of = f", {share(self.link_share)} of the link" if self.link_share is not None else ""
            wire = f"the links carried {bits(self.wire_bits)} while gradients were under way{of}"
        return f"A step takes {milliseconds(self.step_seconds)}; {wire}. {self.bottleneck}"


@dataclass
class Meter:
    """The switch's counters over the time of a rehearsal."""

    network: EmulatedNetwork
    times: list[float] = field(default_factory=list)
    sent: list[list[int]] = field(default_factory=list)

    def look(self, last: bool = False) -> None:
        if last or not self.times or time.time() - self.times[-1] >= COUNT_SECONDS:
            self.sent.append(self.network.sent())
            self.times.append(time.time())

    def between(self, begin: float, end: float) -> float | None:
        """Bytes that the busiest host sent in this time; None when it is too short to tell."""
        if sum(begin <= moment <= end for moment in self.times) < LOOKS:
            return None
        table = np.array(self.sent, dtype=float)  # [looks, hosts]
        return max(
            float(np.interp(end, self.times, column) - np.interp(begin, self.times, column)) for column in table.T
        )


def rehearse(
    run: Path,
    config: Path,
    settings: list[str],
    cluster: EmulatedCluster,
    whole: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> Rehearsal:
    """Trains in the new folder `run`. Unless it is `whole`, nothing is evaluated and nothing saved."""
    with EmulatedNetwork(cluster.hosts + cluster.servers, cluster.link) as network:
        meter = Meter(network)

        def look() -> None:
            meter.look()
            meanwhile()

        programs = [
            _program(host, number, cluster, run, config, settings, whole) for number, host in enumerate(network.members)
        ]
        errors = run_all(programs, look)
        meter.look(last=True)
    if errors:
        raise LockstepError(f"The rehearsal failed: {errors}", f"What there is of it is in {run}.")
    return measure(run, cluster, meter)


def _program(
    host: EmulatedHost, number: int, cluster: EmulatedCluster, run: Path, config: Path, settings: list[str], whole: bool
) -> Program:
    """torchrun as a user would start it on that host. Hosts are numbered, so that servers come last."""
    count = cluster.workers + cluster.servers
    threads = max(1, len(os.sched_getaffinity(0)) // count)
    if not any(setting.startswith("train.threads=") for setting in settings):
        settings = [*settings, f"train.threads={threads}"]
    engine = [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", str(cluster.hosts + cluster.servers), "--node-rank", str(number)),
        *("--nproc-per-node", str(cluster.per_host if number < cluster.hosts else 1)),
        *("--master-addr", "h1", "--master-port", str(PORT)),
    ]
    words = ["train", str(config), *settings, "--run", str(run)]
    environment = {
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "NCCL_SOCKET_IFNAME": INTERFACE,
        "OMP_NUM_THREADS": str(threads),
        "LOCKSTEP_WITHOUT": "" if whole else "nothing",
    }
    return Program(host.command([*engine, "-m", "lockstep", "--", *words]), environment)


def measure(run: Path, cluster: EmulatedCluster, meter: Meter) -> Rehearsal:
    record = Record(run)
    summary, measured, found = summarise_record(record), record.measured, find_bottleneck(record)
    if found is None or summary.seconds_per_step is None or summary.words_per_second is None:
        raise LockstepError(f"All steps of the rehearsal were warm-up; it is in {run}.", "Raise --steps.", code=2)
    first, last = measured.primary.time[0] - measured.primary.seconds[0], measured.primary.time[-1]
    wire, under_way = meter.between(first, last), _under_way(measured)
    return Rehearsal(
        run=str(run),
        cluster=cluster.text(),
        workers=cluster.workers,
        strategy=summary.strategy,
        steps=measured.count,
        step_seconds=summary.seconds_per_step,
        per_second=summary.words_per_second,
        unit=summary.unit,
        phase_shares=summary.phase_shares,
        bytes_per_step=max(float(steps.bytes_sent.mean()) for steps in measured.workers.values()),
        wire_bytes_per_step=None if wire is None else wire / measured.count,
        under_way_seconds=under_way / measured.count,
        wire_bits=8 * wire / under_way if wire is not None and under_way > 0 else None,
        link_bits=rate_bits(cluster.link) if cluster.link else None,
        bottleneck=found.sentence(),
    )


def _under_way(measured: MeasuredSteps) -> float:
    """Seconds of all measured steps in which gradients travelled: of the worker that waited least in each, because the
    others also waited for it."""
    return float(measured.stack("under_way").min(0).sum())
