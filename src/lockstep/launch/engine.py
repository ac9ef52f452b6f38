"""Joins the job of the engine that started this process as one of its workers, and has the worker watched."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from lockstep.launch.environments.first_host import settle_host
from lockstep.launch.environments.placement import Placement, WorkerPlacement
from lockstep.launch.environments.recognize import recognize
from lockstep.monitor_folder import LEFTOVER_SECONDS, make_monitor_folder, register_worker, take_death
from lockstep.notices import warn
from lockstep.own_address import find_own_addresses
from lockstep.run import environment_variables

QUICK_RENDEZVOUS = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3"


@dataclass(frozen=True)
class MonitorFacts:
    """What the first worker of a host tells the monitor that it starts."""

    folder: str  # of `monitor_folder`
    journal: str
    host: str
    address: str  # to listen at
    public_address: str  # under which other hosts reach it
    stall_seconds: float
    start_seconds: float


def find_placement() -> Placement | None:
    """Returns the place of this process in the job of an engine; None if no engine started it."""
    # The task that `srun --pty` starts has a terminal, too: it is the shell, or itself the program.
    is_in_shell = os.isatty(0) and environment_variables.slurm_task_pid() != os.getpid()
    return recognize(environment_variables.copy(), is_in_shell, _is_elastic_torchrun())


def _is_elastic_torchrun() -> bool:
    """Whether the torchrun that started this process may continue with fewer nodes."""
    words = " ".join(_read_command(os.getppid()))
    return re.search(r"--nnodes[= ]\d+:\d+", words) is not None or ":" in environment_variables.torchrun_nodes()


def join_engine() -> Placement | None:
    """Returns what `find_placement` does. If an engine started this process as a worker, RANK, WORLD_SIZE and what else
    torch.distributed reads are set in `os.environ` afterwards, whatever names the engine uses; otherwise they are not."""
    placement = find_placement()
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    if isinstance(placement, WorkerPlacement):
        placement = settle_host(placement)
        numbers = {"RANK": placement.rank, "WORLD_SIZE": placement.size, "LOCAL_RANK": placement.local_rank}
        known = {"LOCAL_WORLD_SIZE": placement.local_size, "MASTER_ADDR": placement.host, "MASTER_PORT": placement.port}
        os.environ.update({name: str(value) for name, value in (numbers | known).items() if value is not None})
    return placement


def watch_host(run: str, journal: Path, stall_seconds: float, start_seconds: float) -> None:
    """Has this worker watched, where possible. The first worker of a host starts the monitor, before torch is imported."""
    folder = make_monitor_folder(run)
    if folder is None:
        return
    try:
        register_worker(folder, environment_variables.rank())
        os.environ["LOCKSTEP_HEARTBEATS"] = str(folder)
        if environment_variables.local_rank() == 0:
            _start_monitor(folder, journal, stall_seconds, start_seconds)
    except OSError as error:
        warn(f"This worker is not watched: {error.strerror}.")


def _start_monitor(folder: Path, journal: Path, stall_seconds: float, start_seconds: float) -> None:
    death = take_death(folder)
    if death is not None and time.time() - death[0] < LEFTOVER_SECONDS:
        os.environ["LOCKSTEP_DEATH"] = f"{death[0]:.3f} {death[1]}"
    address, public_address = find_own_addresses()
    host = socket.gethostname()[:64]
    facts = MonitorFacts(str(folder), str(journal), host, address, public_address, stall_seconds, start_seconds)
    words = [sys.executable, "-m", "lockstep.launch.host_monitor", json.dumps(asdict(facts))]
    # A session of its own: what ends the workers does not end it.
    environment, nothing = environment_variables.copy_without_secret(), subprocess.DEVNULL
    subprocess.Popen(words, stdin=nothing, stdout=nothing, start_new_session=True, env=environment)


def advise_torchrun() -> None:
    """Says which options torchrun lacks to start workers again after a death, quickly."""
    facts = None if environment_variables.node_platform() else environment_variables.torchrun_facts()
    if facts is None or environment_variables.rank() != 0 or environment_variables.disabled_parts():
        return
    most_restarts, shares_store = facts
    is_one_host = environment_variables.local_world_size() == environment_variables.world_size()
    if is_one_host and most_restarts == 0:
        return
    lacks = find_lacks(most_restarts, shares_store, _read_command(os.getppid()), is_one_host)
    if lacks:
        warn(f"After a death torchrun will not start the workers again, or slowly. Add {', '.join(lacks)}.")


def find_lacks(most_restarts: int, shares_store: bool, command: list[str], is_one_host: bool) -> list[str]:
    """Returns what should be added to a torchrun command and its environment."""
    words = " ".join(command).replace("_", "-")
    lacks = []
    if most_restarts == 0:
        lacks.append("--max-restarts 3")
    if shares_store:
        lacks.append("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 (an environment variable)")
    if not is_one_host and command and "--rdzv-backend" not in words:
        lacks.append("--rdzv-backend c10d --rdzv-endpoint HOST:PORT in place of --master-addr and --master-port")
    if not is_one_host and command and "keep-alive-interval" not in words:
        lacks.append(f"--rdzv-conf {QUICK_RENDEZVOUS}")
    return lacks


def _read_command(pid: int) -> list[str]:
    """Returns the command line of a process; empty where it cannot be read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
