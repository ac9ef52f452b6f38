"""A short training that is started to be measured, on this machine as it is or on emulated hosts."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.errors import LockstepError
from lockstep.lab.emulated_network import INTERFACE, EmulatedNetwork
from lockstep.launch.run_all import Program, run_all
from lockstep.run.journal import read

Line = dict[str, Any]
PORT = 29500


@dataclass(frozen=True)
class Trial:
    """What a short training left: the steps of every worker."""

    run: Path
    steps: list[list[Line]]

    @property
    def measured(self) -> list[list[Line]]:
        """Without the warm-up."""
        return [[line for line in lines if not line["warmup"]] for lines in self.steps]

    @property
    def launch(self) -> Line:
        """The `run` line: precision, threads, what is counted."""
        return read(self.run / "journal").of("run")[-1]


def attempt(
    run: Path,
    config: Path,
    settings: list[str],
    workers: int,
    servers: int = 0,
    without: str = "nothing",
    network: EmulatedNetwork | None = None,
) -> Trial:
    """Trains in the new folder `run`. Such a run evaluates nothing and saves nothing, unless `without` is empty."""
    if network is not None and not any(setting.startswith("train.threads=") for setting in settings):
        cores = len(os.sched_getaffinity(0))  # which the emulated hosts share
        settings = [*settings, f"train.threads={max(1, cores // len(network.members))}"]
    if servers:
        settings = [*settings, f"strategy.servers={servers}"]
    words = ["train", str(config), *settings, "--run", str(run)]
    program = [sys.executable, "-m", "lockstep", *words]
    environment = {"LOCKSTEP_WITHOUT": without, "TMPDIR": str(run.parent)}  # nothing stays elsewhere
    if network is None:
        programs = [Program([*program, "--workers", str(workers)], environment)]
    else:
        programs = [
            Program(host.command(program), environment | place(rank, network))
            for rank, host in enumerate(network.members)
        ]
    errors = run_all(programs)
    if errors:
        raise LockstepError(f"A trial run failed: {errors}")
    return Trial(run, [read(run / "journal", rank).steps for rank in range(workers)])


def place(rank: int, network: EmulatedNetwork) -> dict[str, str]:
    """What an engine would tell the process of this host."""
    numbers = {"RANK": rank, "WORLD_SIZE": len(network.members), "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
    meeting = {"MASTER_ADDR": network.members[0].address, "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": INTERFACE}
    return {name: str(value) for name, value in numbers.items()} | meeting
