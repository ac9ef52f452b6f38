"""Runs the workers of strategy `resilient` on this machine: each one that dies is restarted by itself.

torchft's lighthouse, which knows which workers are alive, runs beside them. torch's elastic agent, one per worker, would
also restart a worker that has reported what is wrong, and handles no signals in a thread.
"""

import importlib.util
import uuid
from pathlib import Path

from lockstep.errors import LockstepError, missing
from lockstep.job_secret import make_secret_environment
from lockstep.launch.fixed import STOP_SECONDS, choose_threads, find_free_port
from lockstep.launch.fork_server import ForkServer, Target
from lockstep.launch.launch_folder import make_launch_folder
from lockstep.launch.supervisor import ChildProcess, Supervisor
from lockstep.notices import warn
from lockstep.run import environment_variables

MAX_EARLY_DEATHS = 3
"""A worker that died this many times in a row before its first step is not restarted."""


class ElasticWorkers:
    """The workers of one launch and the lighthouse. Workers leave marks of their progress in the folder LOCKSTEP_START."""

    def __init__(
        self,
        supervisor: Supervisor,
        server: ForkServer,
        workers: int,
        lighthouse: Target,
        max_restarts: int,
        dead_after_seconds: float,
        environment: dict[str, str],
    ) -> None:
        self.supervisor, self.server, self.workers = supervisor, server, workers
        self.lighthouse, self.max_restarts, self.environment = lighthouse, max_restarts, environment
        self.dead_after_seconds = dead_after_seconds
        self.folder = Path(environment["LOCKSTEP_START"])
        self.restarts = [0] * workers  # of each worker
        self.early_deaths = [0] * workers  # of each worker, in a row
        self.finished = 0
        self.failures: list[LockstepError] = []
        self._start_lighthouse()
        for rank in range(workers):
            self._start(rank)

    def run(self) -> None:
        """Restarts what dies until every worker has finished or is given up, or the time to stop is over."""
        for child in self.supervisor.exits():
            if child.is_helper:
                self._start_lighthouse()
            else:
                self._handle_exit(child)

    def _start_lighthouse(self) -> None:
        process = self.server.start(self.lighthouse, {})
        self.supervisor.watch(ChildProcess("Lighthouse", process, is_helper=True))

    def _start(self, rank: int, delay_seconds: float = 0.0) -> None:
        environment = self.environment | {"LOCKSTEP_RESTARTS": str(self.restarts[rank])}
        self.supervisor.watch(self.server.start_worker(rank, self.workers, environment, self.folder, delay_seconds))

    def _handle_exit(self, child: ChildProcess) -> None:
        reported = child.read_error()
        failure = reported.error if reported and reported.kind not in ("lost", "crash", "writer") else None
        if child.exit_code == 0 or (self.supervisor.signals and failure is None):
            self.finished += child.exit_code == 0
            return
        failure = failure or self._restart(child)
        if failure is not None:
            self.failures.append(failure)
            (self.folder / f"ready-{child.rank}").touch()  # the others need not wait for it at the start
            if any(not other.is_helper for other in self.supervisor.children):
                warn(f"Worker {child.rank} is given up, the others continue. {failure}")

    def _restart(self, child: ChildProcess) -> LockstepError | None:
        """Starts a dead worker again, or returns why it is given up."""
        rank, restarts = child.rank, self.restarts[child.rank]
        has_stepped = (self.folder / f"stepped-{rank}-{restarts}").exists()
        self.early_deaths[rank] = 0 if has_stepped else self.early_deaths[rank] + 1
        is_hopeless = self.early_deaths[rank] >= MAX_EARLY_DEATHS
        if is_hopeless or restarts >= self.max_restarts:
            often = f"{MAX_EARLY_DEATHS} times in a row before its first step" if is_hopeless else "too often"
            after = f"after {restarts} restart{'s' * (restarts != 1)}"
            return LockstepError(f"{child.describe_exit()}: it died {often}, {after}.", "See logs/ in the run folder.")
        self.restarts[rank] += 1
        warn(f"{child.describe_exit()}; started again ({restarts + 1} of {self.max_restarts} restarts).")
        # Until then the lighthouse counts the dead worker: a quorum would include it and wait for it to connect.
        self._start(rank, delay_seconds=self.dead_after_seconds)
        return None


def launch_elastic(
    target: Target,
    workers: int,
    max_restarts: int,
    dead_after_seconds: float,
    wait_seconds: float,
    port: int = 0,
    stop_seconds: int = STOP_SECONDS,
) -> int | None:
    """Runs `target` once for every worker and waits until each has finished or is given up. Each reads its place from
    RANK, WORLD_SIZE and TORCHFT_LIGHTHOUSE. Returns the stop signal that ended the launch, if one did. Raises an error
    only if no worker finished."""
    if importlib.util.find_spec("torchft") is None:
        raise missing("strategy.name=resilient", "torchft", "resilient")
    port = find_free_port(port)
    lighthouse = Target("lockstep.launch.lighthouse", (str(port), str(wait_seconds), str(dead_after_seconds)))
    with (
        make_launch_folder() as folder,
        ForkServer(target, {"OMP_NUM_THREADS": choose_threads(workers)}) as server,
        Supervisor(stop_seconds) as supervisor,
    ):
        environment = {
            "WORLD_SIZE": str(workers),
            "LOCAL_WORLD_SIZE": str(workers),
            "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}",
            "LOCKSTEP_LAUNCH": uuid.uuid4().hex,
            "LOCKSTEP_START": folder,
            "GLOO_SOCKET_IFNAME": environment_variables.socket_interface("gloo") or "lo",  # nobody else can connect
            **make_secret_environment(),
        }
        launched = ElasticWorkers(
            supervisor, server, workers, lighthouse, max_restarts, dead_after_seconds, environment
        )
        launched.run()
    if launched.failures and not launched.finished:
        raise launched.failures[0]
    return supervisor.signals[0] if supervisor.signals else None
