"""A short training that is measured, on this machine or on emulated hosts."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from lockstep.errors import LockstepError
from lockstep.job_secret import make_secret_environment
from lockstep.lab.emulated_network import INTERFACE, EmulatedNetwork
from lockstep.launch.run_all import Program, run_all
from lockstep.run.journal import Line, read
from lockstep.watch.other_programs import OtherPrograms

PORT = 29500
NEVER = 10**9
"""An interval in steps that no trial reaches."""


@dataclass(frozen=True)
class Trial:
    """The step lines of every worker of a short training."""

    run: Path
    steps: list[list[Line]]
    others_share: float | None = None  # of the cores, used by other programs; None: not measured

    @property
    def measured(self) -> list[list[Line]]:
        """The steps after the warm-up."""
        return [[line for line in lines if not line["warmup"]] for lines in self.steps]

    @property
    def launch(self) -> Line:
        """The `run` line of the journal, with precision, threads and the unit of the batch."""
        return read(self.run / "journal").of("run")[-1]


def run_trial(
    run: Path,
    config: Path,
    settings: list[str],
    workers: int,
    servers: int = 0,
    without: str = "nothing",
    network: EmulatedNetwork | None = None,
) -> Trial:
    """Trains in the new folder `run`, without evaluation and checkpoints unless `without` is empty."""
    if network is not None and not any(setting.startswith("train.threads=") for setting in settings):
        cores = len(os.sched_getaffinity(0))  # shared by the emulated hosts
        settings = [*settings, f"train.threads={max(1, cores // len(network.members))}"]
    if servers:
        settings = [*settings, f"strategy.servers={servers}"]
    words = ["train", str(config), *settings, "--run", str(run)]
    program = [sys.executable, "-m", "lockstep", *words]
    environment = {"LOCKSTEP_WITHOUT": without, "TMPDIR": str(run.parent)}  # temporary files go with the trial
    environment |= make_secret_environment()
    if network is None:
        programs = [Program([*program, "--workers", str(workers)], environment)]
    else:
        programs = [
            Program(host.command(program), environment | make_rank_environment(rank, network))
            for rank, host in enumerate(network.members)
        ]
    others = _watch_others()
    errors = run_all(programs)
    if errors:
        raise LockstepError(f"A trial run failed: {errors}")
    return Trial(run, [read(run / "journal", rank).steps for rank in range(workers)], others())


def _watch_others() -> Callable[[], float | None]:
    """Returns a function for the share of the cores that other programs use from now until its call. It returns None on
    machines that do not tell."""
    begin = time.perf_counter()
    try:
        source = OtherPrograms(os.getpid())
    except (AttributeError, LookupError, OSError, psutil.Error):
        return lambda: None

    def measure() -> float | None:
        try:
            return source(time.perf_counter() - begin)
        except (LookupError, OSError, psutil.Error):
            return None

    return measure


def make_trial_settings(steps: int) -> list[str]:
    """Returns settings for a training of `steps` steps without evaluation and checkpoints."""
    intervals = [f"train.{name}_every={NEVER}" for name in ("evaluate", "checkpoint")]
    return [f"train.steps={steps}", "train.patience=null", *intervals]


def make_rank_environment(rank: int, network: EmulatedNetwork) -> dict[str, str]:
    """Returns the variables that torchrun would set for the process of this host."""
    numbers = {"RANK": rank, "WORLD_SIZE": len(network.members), "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
    master = {"MASTER_ADDR": network.members[0].address, "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": INTERFACE}
    return {name: str(value) for name, value in numbers.items()} | master
