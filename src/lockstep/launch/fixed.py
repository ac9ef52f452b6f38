"""Runs a fixed set of workers and servers on this machine: when one that the others need fails, all start again.

Several machines have engines of their own (torchrun, mpirun, Slurm), which start `lockstep train` themselves. torch's
elastic agent could do the work of this module, but importing it takes as long as importing torch in a worker.
"""

import errno
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from lockstep.errors import LockstepError, PortTaken
from lockstep.heartbeat import read_heartbeat
from lockstep.job_secret import make_secret_environment
from lockstep.launch.describe_death import describe_death
from lockstep.launch.describe_stall import Stall
from lockstep.launch.fault_journal import FaultJournal
from lockstep.launch.fork_server import ForkServer, Target
from lockstep.launch.launch_folder import make_launch_folder
from lockstep.launch.memory_kills import MemoryKills
from lockstep.launch.slow_monitor import SlowMonitor
from lockstep.launch.stall_watch import StallWatch, WatchedWorker
from lockstep.launch.supervisor import RESUME, ChildProcess, Supervisor
from lockstep.notices import warn
from lockstep.run import environment_variables
from lockstep.run.directory import RunDirectory

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


class WorkerDied(LockstepError):
    """A worker died without saying why, or stood still: another launch may succeed."""


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
    run_folder: Path | None = None  # where the journal is that faults are written to

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
    with ForkServer(target, {"OMP_NUM_THREADS": choose_threads(launch.count)}) as server:
        deaths, is_port_tried = Deaths(launch.restarts), False
        while True:
            try:
                return _launch_once(server, launch, port, deaths)
            except PortTaken:
                if is_port_tried:
                    raise
                is_port_tried = True
            except WorkerDied as error:
                warn(deaths.add(error))
            port = find_free_port(launch.port)


class Deaths:
    """Counts the deaths of a launch, and decides whether to start again."""

    MOST_IN_VAIN = 3

    def __init__(self, most_restarts: int) -> None:
        self.restarts, self._most_restarts = 0, most_restarts
        self.furthest_step = 0
        self._furthest_before, self._in_vain = -1, 0
        self._last: tuple[float, str] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What the next workers are told."""
        if self._last is None:
            return {}
        moment, sentence = self._last
        return {"LOCKSTEP_RESTARTS": str(self.restarts), "LOCKSTEP_DEATH": f"{moment:.3f} {sentence}"}

    def add(self, error: WorkerDied) -> str:
        """Returns a sentence about the restart, or raises if there is none."""
        is_further = self.furthest_step > self._furthest_before
        self._in_vain = 1 if is_further else self._in_vain + 1
        self._furthest_before = max(self._furthest_before, self.furthest_step)
        if self._in_vain >= self.MOST_IN_VAIN and self._most_restarts:
            step = f"{max(self.furthest_step, 1):,}"
            remedy = f"`lockstep data show RUN --step {step.replace(',', '')}` prints its sentences. {RESUME}"
            raise LockstepError(f"{error.message} Workers died {self._in_vain} times at step {step}.", remedy)
        if self.restarts >= self._most_restarts:
            raise error
        self.restarts += 1
        self._last = time.time(), error.message
        return (
            f"{error.message} All start again from the last checkpoint "
            f"(restart {self.restarts} of {self._most_restarts})."
        )


def _launch_once(server: ForkServer, launch: FixedLaunch, port: int, deaths: Deaths) -> int | None:
    environment = {
        "WORLD_SIZE": str(launch.count),
        "LOCAL_WORLD_SIZE": str(launch.count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": environment_variables.socket_interface("gloo") or "lo",  # nobody else can connect
        **make_secret_environment(),
        **deaths.environment,
    }
    with make_launch_folder() as name:
        folder = Path(name)
        monitor = Monitor(folder, launch)
        environment["LOCKSTEP_HEARTBEATS"] = name if monitor.is_watching else ""
        try:
            with Supervisor(launch.stop_seconds, on_poll=monitor.check) as supervisor:
                monitor.supervisor = supervisor
                for rank in range(launch.count):
                    supervisor.watch(server.start_worker(rank, launch.workers, environment, folder))
                _wait(supervisor, launch, monitor)
                return supervisor.signals[0] if supervisor.signals else None
        finally:
            monitor.close()
            deaths.furthest_step = max(deaths.furthest_step, monitor.furthest_step)


def _wait(supervisor: Supervisor, launch: FixedLaunch, monitor: "Monitor") -> None:
    """Waits until all have ended, and raises why if one failed that the others need."""
    failed: list[ChildProcess] = []  # the first is the one that ended the launch
    for child in supervisor.exits():
        if child.exit_code != 0 and (failed or not _is_harmless(child, launch.expendable, bool(supervisor.signals))):
            failed.append(child)
            supervisor.end_within(GRACE_SECONDS)
    if monitor.ended is not None and failed:
        raise WorkerDied(monitor.ended.sentence, RESUME)
    if failed:
        raise _find_cause(failed, bool(supervisor.signals), monitor)
    if supervisor.children:
        raise LockstepError(f"The workers did not stop within {launch.stop_seconds} seconds.", RESUME)


class Monitor:
    """Names workers that stand still, and ends them after a while."""

    def __init__(self, folder: Path, launch: FixedLaunch) -> None:
        self.supervisor: Supervisor | None = None
        self.ended: Stall | None = None  # the stall for which workers were ended
        self.kills = MemoryKills()
        self._folder, self._workers = folder, launch.workers
        self._logs = None if launch.run_folder is None else RunDirectory(launch.run_folder).logs
        self._journal = FaultJournal(None if launch.run_folder is None else RunDirectory(launch.run_folder).journal)
        self._slow = SlowMonitor(folder, self._journal)
        self._is_lockstep = not launch.can_lose_workers
        self._watch = None
        if launch.stall_seconds is not None:
            self._watch = StallWatch(folder, launch.stall_seconds, launch.start_seconds)
        self._named: Stall | None = None

    @property
    def is_watching(self) -> bool:
        return self._watch is not None

    @property
    def furthest_step(self) -> int:
        return 0 if self._watch is None else self._watch.find_furthest_step(self._workers)

    def check(self) -> None:
        if self._watch is None or self.supervisor is None or self.supervisor.signals or self.ended is not None:
            return
        children = [child for child in self.supervisor.children if child.rank < self._workers]
        workers = [WatchedWorker(child.rank, child.process.pid) for child in children]
        self.kills.look(worker.pid for worker in workers)
        if self._is_lockstep:
            self._slow.check(workers)
        new = self._watch.check(workers)
        if new is not None:
            self._named = new
            warn(new.sentence)
            self._write("stall", new)
        elif self._named is not None and self._watch.stall is None:
            who = "The workers continue" if self._named.rank is None else f"Worker {self._named.rank} continues"
            warn(f"{who}.")
            self._write("continues", self._named)
            self._named = None
        if self._watch.is_over():
            self.ended = self._watch.stall
            if self.ended is not None:
                self._write("ended", self.ended)
            for child in children:
                if self.ended is None or self.ended.rank in (None, child.rank):
                    child.process.kill()

    def describe_death(self, child: ChildProcess) -> str:
        """Says how a worker died that did not report why, and journals it."""
        beats = {
            rank: beat for rank in range(self._workers) if (beat := read_heartbeat(self._folder, rank)) is not None
        }
        death = describe_death(child, self.kills, beats, self._logs)
        facts = {"phase": death.phase, "step": death.step, "evidence": death.evidence, "sentence": death.sentence}
        self._journal.write("died", death.rank, **facts)
        return death.sentence

    def _write(self, what: str, stall: Stall) -> None:
        facts = {"phase": stall.phase, "step": stall.step, "evidence": stall.evidence, "sentence": stall.sentence}
        self._journal.write_stall(what, stall.rank, stall.since, **facts)

    def close(self) -> None:
        self._slow.close()


def _is_harmless(child: ChildProcess, expendable: range, is_stopping: bool) -> bool:
    """Returns whether the launch continues although this process failed."""
    reported = child.read_error()
    kind = reported.kind if reported else ""
    if is_stopping and kind in ("", "lost"):  # a stop signal may arrive before a worker handles it
        return True
    if child.rank not in expendable or kind not in ("", "memory", "crash"):
        return False
    why = " (out of memory)" if kind == "memory" else ""
    warn(f"{child.describe_exit()}{why}; the others continue.")
    return True


def _find_cause(failed: list[ChildProcess], is_stopping: bool, monitor: Monitor) -> LockstepError:
    """Returns the error that tells most: one that a process reported about itself, then the exit of a process that
    reported nothing, then a lost connection, which is only a consequence."""
    reports = [(child, child.read_error()) for child in failed]
    errors = {reported.kind: reported.error for _, reported in reversed(reports) if reported is not None}
    for kind in ("error", "memory"):
        if kind in errors:
            return errors[kind]
    if "writer" in errors and not is_stopping:
        return WorkerDied(errors["writer"].message, errors["writer"].remedy)
    if "port" in errors:
        return PortTaken(errors["port"].message, errors["port"].remedy, errors["port"].code)
    for child, reported in reports:
        is_unexplained = reported is None or reported.kind == "crash"
        if is_unexplained and child.exit_code != -signal.SIGTERM:
            kind_of_error = LockstepError if is_stopping else WorkerDied
            return kind_of_error(monitor.describe_death(child), RESUME)
    if "lost" in errors and not is_stopping:
        return WorkerDied(errors["lost"].message, errors["lost"].remedy)
    return errors.get("writer") or errors.get("lost") or LockstepError("The workers were stopped by SIGTERM.", RESUME)
