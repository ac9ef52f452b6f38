"""Runs a job on an emulated cluster, with torchrun on every host as on real machines, and measures its links."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.explain.formatting import bits, milliseconds, share
from lockstep.explain.measures.bottleneck import find_bottleneck
from lockstep.explain.reading.measured_steps import MeasuredSteps
from lockstep.explain.reading.record import Record
from lockstep.explain.summary import summarise_record
from lockstep.job_secret import make_secret_environment
from lockstep.lab.emulated_network import INTERFACE, EmulatedHost, EmulatedNetwork, parse_rate
from lockstep.launch.run_all import Program, run_all

PORT = 29400
COUNT_SECONDS = 0.5
"""Time between two readings of the switch's counters."""
LEAST_READINGS = 4
"""With fewer readings during the measured steps, the time between two readings would decide the figure."""


@dataclass(frozen=True)
class EmulatedCluster:
    """Emulated hosts with equal links."""

    hosts: int
    link: str | None  # rate of every port in each direction, in the notation of tc; None: unlimited
    per_host: int = 1  # workers
    servers: int = 0  # each on an additional host

    @property
    def workers(self) -> int:
        return self.hosts * self.per_host

    def describe(self) -> str:
        each = f" x {self.per_host} workers" if self.per_host > 1 else ""
        servers = f" and {self.servers} of parameter servers" if self.servers else ""
        hosts = f"{self.hosts} emulated host{'s' * (self.hosts != 1)}"
        return f"{hosts}{each}{servers}, {self.link or 'unlimited links'}"


@dataclass(frozen=True)
class Rehearsal:
    """Means over the steps after the warm-up."""

    run: str
    cluster: str
    workers: int
    strategy: str
    steps: int  # measured
    step_seconds: float
    per_second: float
    unit: str
    phase_shares: dict[str, float]
    bytes_per_step: float  # of the busiest worker, from its journal
    wire_bytes_per_step: float | None  # of the busiest host, from the switch's counters; None: too few readings
    under_way_seconds: float  # of a step, in which gradients travelled
    wire_bits: float | None  # bits per second of the busiest host while gradients travelled
    link_bits: float | None
    bottleneck: str

    @property
    def link_share(self) -> float | None:
        """The share of the link's rate that was used while gradients travelled."""
        return self.wire_bits / self.link_bits if self.wire_bits and self.link_bits else None

    def as_dict(self) -> dict[str, JsonValue]:
        return {**asdict(self), "link_share": self.link_share}

    def sentence(self) -> str:
        wire = "the measured steps were too short to measure the rate on the links"
        if self.wire_bits is not None:
            of = f", {share(self.link_share)} of the link" if self.link_share is not None else ""
            wire = f"the links carried {bits(self.wire_bits)} while gradients travelled{of}"
        return f"A step takes {milliseconds(self.step_seconds)}; {wire}. {self.bottleneck}"


@dataclass
class Meter:
    """Readings of the switch's counters during a rehearsal."""

    network: EmulatedNetwork
    times: list[float] = field(default_factory=list)
    sent: list[list[int]] = field(default_factory=list)

    def read(self, last: bool = False) -> None:
        """Reads the counters, unless the previous reading is too recent and this is not the last one."""
        if last or not self.times or time.time() - self.times[-1] >= COUNT_SECONDS:
            self.sent.append(self.network.read_sent_bytes())
            self.times.append(time.time())

    def count_bytes(self, start: float, end: float) -> float | None:
        """Returns the bytes that the busiest host sent from `start` to `end`; None with too few readings in between."""
        if sum(start <= moment <= end for moment in self.times) < LEAST_READINGS:
            return None
        table = np.array(self.sent, dtype=float)  # [readings, hosts]
        return max(
            float(np.interp(end, self.times, column) - np.interp(start, self.times, column)) for column in table.T
        )


def rehearse(
    run: Path,
    config: Path,
    settings: list[str],
    cluster: EmulatedCluster,
    is_complete: bool = False,
    on_poll: Callable[[], None] = lambda: None,
) -> Rehearsal:
    """Trains in the new folder `run` and calls `on_poll` regularly. Unless the rehearsal is complete, it has no evaluation
    and no checkpoints."""
    with EmulatedNetwork(cluster.hosts + cluster.servers, cluster.link) as network:
        meter = Meter(network)

        def poll() -> None:
            meter.read()
            on_poll()

        secret = make_secret_environment()
        programs = [
            _make_program(host, number, cluster, run, config, settings, is_complete, secret)
            for number, host in enumerate(network.members)
        ]
        errors = run_all(programs, poll)
        meter.read(last=True)
    if errors:
        raise LockstepError(f"The rehearsal failed: {errors}", f"Its journals are in {run}.")
    return measure_rehearsal(run, cluster, meter)


def _make_program(
    host: EmulatedHost,
    number: int,
    cluster: EmulatedCluster,
    run: Path,
    config: Path,
    settings: list[str],
    is_complete: bool,
    secret: dict[str, str],
) -> Program:
    """Returns the torchrun command of a host. The hosts of servers have the last numbers."""
    count = cluster.workers + cluster.servers
    threads = max(1, len(os.sched_getaffinity(0)) // count)
    if not any(setting.startswith("train.threads=") for setting in settings):
        settings = [*settings, f"train.threads={threads}"]
    torchrun = [
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
        "LOCKSTEP_WITHOUT": "" if is_complete else "nothing",
        **secret,
    }
    return Program(host.command([*torchrun, "-m", "lockstep", "--", *words]), environment)


def measure_rehearsal(run: Path, cluster: EmulatedCluster, meter: Meter) -> Rehearsal:
    record = Record(run)
    summary, measured, bottleneck = summarise_record(record), record.measured, find_bottleneck(record)
    if bottleneck is None or summary.seconds_per_step is None or summary.words_per_second is None:
        raise LockstepError(f"All steps of the rehearsal in {run} were warm-up.", "Raise --steps.", code=2)
    first, last = measured.primary.time[0] - measured.primary.seconds[0], measured.primary.time[-1]
    wire, under_way = meter.count_bytes(first, last), _sum_under_way(measured)
    return Rehearsal(
        run=str(run),
        cluster=cluster.describe(),
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
        link_bits=parse_rate(cluster.link) if cluster.link else None,
        bottleneck=bottleneck.sentence(),
    )


def _sum_under_way(measured: MeasuredSteps) -> float:
    """Returns the seconds of all measured steps in which gradients travelled. In each step they are those of the worker
    that waited least, because the others also waited for that worker."""
    return float(measured.stack("in_flight").min(0).sum())
