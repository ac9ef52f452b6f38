"""Runs a fixed set of workers and servers on this machine: when one that the others need fails, all start again.

Several machines have engines of their own (torchrun, mpirun, Slurm), which start `lockstep train` themselves. torch's
elastic agent could do the work of this module, but importing it takes as long as importing torch in a worker.
"""

import errno
import math
import signal
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.errors import LockstepError, PortTaken
from lockstep.launch.deaths import Deaths, WorkerDied
from lockstep.launch.fork_server import ForkServer, Target
from lockstep.launch.launch_folder import make_launch_folder
from lockstep.launch.monitor import Monitor
from lockstep.launch.stall_watch import StallWatch
from lockstep.launch.supervisor import RESUME, ChildProcess, Supervisor
from lockstep.notices import warn
from lockstep.run import environment_variables
from lockstep.run.journal import read as read_journal

GRACE_SECONDS = 5.0
"""How long the other processes may take to report their own failure after one has failed."""
STOP_SECONDS = 120
"""How long workers may take to save a checkpoint after a stop signal."""


def find_free_port(port: int = 0) -> int:
    """Returns `port` if no other program uses it, or any free port for 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            why = "is already in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
            raise LockstepError(
                f"Port {port} {why}.", "Give another with --port, or leave it out to take a free one.", code=2
            ) from None
        return int(probe.getsockname()[1])


def choose_threads(processes: int) -> str:
    """Returns OMP_NUM_THREADS for each of several processes: an equal share of the cores unless the user has set it."""
    return str(environment_variables.threads_per_process(processes))


@dataclass(frozen=True)
class FixedLaunch:
    """What is launched, and how failures are handled. The servers have the last ranks."""

    workers: int
    servers: int = 0
    port: int = 0
    can_lose_workers: bool = False  # continue after the death of any worker but the first
    stop_seconds: int = STOP_SECONDS
    restarts: int = 0  # how often all are started again after a death
    stall_seconds: float | None = None  # None: nobody watches for workers that stand still
    start_seconds: float = 600.0  # how long workers may take before their first step
    least_workers: int | None = None  # an elastic range: so many continue when the others are lost
    return_seconds: float = math.inf  # after which lost workers are started again
    journal: Path | None = None  # of the run

    @property
    def count(self) -> int:
        return self.workers + self.servers

    @property
    def expendable(self) -> range:
        return range(1, self.workers) if self.can_lose_workers else range(0)


def launch_fixed(target: Target, launch: FixedLaunch) -> int | None:
    """Runs `target` once for every worker and server and waits for all of them. Each reads its place from RANK,
    WORLD_SIZE and so on. Returns the stop signal that ended the launch, if one did."""
    port = find_free_port(launch.port)
    least_workers = launch.workers if launch.least_workers is None else launch.least_workers
    with ForkServer(target, {"OMP_NUM_THREADS": choose_threads(launch.count)}) as server:
        deaths, is_port_tried = Deaths(launch.restarts, launch.workers, least_workers), False
        while True:
            try:
                stop_signal = _launch_once(server, launch, port, deaths)
                if not deaths.is_return_due or stop_signal is not None or _has_finished(launch):
                    return stop_signal
                warn(deaths.bring_back())
            except PortTaken:
                if is_port_tried:
                    raise
                is_port_tried = True
            except WorkerDied as error:
                warn(deaths.add(error))
            port = find_free_port(launch.port)


def _has_finished(launch: FixedLaunch) -> bool:
    """Whether the last launch ended by itself, before it could be asked to stop."""
    stops = [] if launch.journal is None else read_journal(launch.journal).of("stop")
    return bool(stops) and stops[-1].get("reason") != "signal"


def _launch_once(server: ForkServer, launch: FixedLaunch, port: int, deaths: Deaths) -> int | None:
    launch = replace(launch, workers=len(deaths.places))
    environment = {
        "WORLD_SIZE": str(launch.count),
        "LOCAL_WORLD_SIZE": str(launch.count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": environment_variables.socket_interface("gloo") or "lo",  # nobody else can connect
        **deaths.environment,
    }
    with make_launch_folder() as name:
        folder = Path(name)
        monitor = _make_monitor(folder, launch, deaths)
        environment["LOCKSTEP_HEARTBEATS"] = name if monitor.is_watching else ""
        try:
            with Supervisor(launch.stop_seconds, on_poll=monitor.check) as supervisor:
                monitor.supervisor = supervisor
                for rank in range(launch.count):
                    place = deaths.places[rank] if rank < launch.workers else rank
                    supervisor.watch(server.start_worker(rank, launch.workers, environment, folder, place=place))
                _wait(supervisor, launch, monitor)
                return supervisor.signals[0] if supervisor.signals else None
        except WorkerDied as error:
            if error.rank is not None and error.rank < launch.workers:
                error.place = deaths.places[error.rank]
            raise
        finally:
            deaths.furthest_step = max(deaths.furthest_step, monitor.furthest_step)
            deaths.is_return_due = monitor.is_return_due


def _make_monitor(folder: Path, launch: FixedLaunch, deaths: Deaths) -> Monitor:
    watch = None
    if launch.stall_seconds is not None:
        watch = StallWatch(folder, launch.stall_seconds, launch.start_seconds)
    return_seconds = launch.return_seconds if deaths.is_reduced else math.inf
    return Monitor(watch, launch.workers, launch.journal, return_seconds, deaths.furthest_step)


def _wait(supervisor: Supervisor, launch: FixedLaunch, monitor: Monitor) -> None:
    """Waits until all have ended, and raises why if one failed that the others need."""
    failed: list[ChildProcess] = []  # the first is the one that ended the launch
    for child in supervisor.exits():
        is_stopping = bool(supervisor.signals) or supervisor.is_stopping
        if child.exit_code != 0 and (failed or not _is_harmless(child, launch.expendable, is_stopping)):
            failed.append(child)
            supervisor.end_within(GRACE_SECONDS)
    if monitor.ended is not None and failed:
        raise WorkerDied(monitor.ended.sentence, RESUME, rank=monitor.ended.rank)
    if failed:
        raise _find_cause(failed, bool(supervisor.signals))
    if supervisor.children:
        raise LockstepError(f"The workers did not stop within {launch.stop_seconds} seconds.", RESUME)


def _is_harmless(child: ChildProcess, expendable: range, is_stopping: bool) -> bool:
    """Returns whether the launch continues although this process failed."""
    reported = child.read_error()
    kind = reported.kind if reported else ""
    if is_stopping and kind in ("", "lost"):  # a stop signal may arrive before a worker handles it
        return True
    if child.rank not in expendable or kind not in ("", "memory"):
        return False
    why = " (out of memory)" if kind else ""
    warn(f"{child.describe_exit()}{why}; the others continue.")
    return True


def _find_cause(failed: list[ChildProcess], is_stopping: bool) -> LockstepError:
    """Returns the error that tells most: one that a process reported about itself, then the exit of a process that
    reported nothing, then a lost connection, which is only a consequence."""
    reports = [(child, child.read_error()) for child in failed]
    errors = {reported.kind: reported.error for _, reported in reversed(reports) if reported is not None}
    for kind in ("error", "memory"):
        if kind in errors:
            return errors[kind]
    if "port" in errors:
        return PortTaken(errors["port"].message, errors["port"].remedy, errors["port"].code)
    for child, reported in reports:
        if reported is None and child.exit_code != -signal.SIGTERM:
            is_error = child.exit_code is not None and child.exit_code > 0
            is_killed = child.exit_code == -signal.SIGKILL
            kind, number = child.name.lower().split()
            log = f"; see logs/{kind}-{int(number):04d}.log in the run folder"
            hint = " (out of memory?)" if is_killed else "; see its message above" if is_error else log
            sentence = f"{child.describe_exit()}{hint}."
            return LockstepError(sentence, RESUME) if is_stopping else WorkerDied(sentence, RESUME, rank=child.rank)
    if "lost" in errors and not is_stopping:
        return WorkerDied(errors["lost"].message, errors["lost"].remedy)
    return errors.get("lost") or LockstepError("The workers were stopped by SIGTERM.", RESUME)
