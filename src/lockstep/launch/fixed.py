"""Runs a fixed set of workers and servers on this machine: when one that the others need fails, the run ends.

Several machines have engines of their own (torchrun, mpirun, Slurm), which start `lockstep train` themselves. torch's
elastic agent could do the work of this module, but importing it takes as long as importing torch in a worker.
"""

import errno
import signal
import socket
import tempfile
from pathlib import Path

from lockstep.errors import LockstepError, PortTaken
from lockstep.launch.fork_server import ForkServer, Target
from lockstep.launch.supervisor import RESUME, ChildProcess, Supervisor
from lockstep.notices import warn
from lockstep.run import environment_variables

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


def launch_fixed(
    target: Target,
    workers: int,
    servers: int = 0,
    port: int = 0,
    can_lose_workers: bool = False,
    stop_seconds: int = STOP_SECONDS,
) -> int | None:
    """Runs `target` once for every worker and server and waits for all of them. Each reads its place from RANK,
    WORLD_SIZE and so on; the servers have the last ranks. Returns the stop signal that ended the launch, if one did.

    With `can_lose_workers` the launch continues after the death of any worker but the first.
    """
    expendable = range(1, workers) if can_lose_workers else range(0)
    free_port = find_free_port(port)
    with ForkServer(target, {"OMP_NUM_THREADS": choose_threads(workers + servers)}) as server:
        try:
            return _launch_once(server, workers, servers, free_port, expendable, stop_seconds)
        except PortTaken:
            return _launch_once(server, workers, servers, find_free_port(port), expendable, stop_seconds)


def _launch_once(
    server: ForkServer, workers: int, servers: int, port: int, expendable: range, stop_seconds: int
) -> int | None:
    count = workers + servers
    environment = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder, Supervisor(stop_seconds) as supervisor:
        for rank in range(count):
            supervisor.watch(server.start_worker(rank, workers, environment, Path(folder)))
        failed: list[ChildProcess] = []  # the first is the one that ended the launch
        for child in supervisor.exits():
            if child.exit_code != 0 and (failed or not _is_harmless(child, expendable, bool(supervisor.signals))):
                failed.append(child)
                supervisor.end_within(GRACE_SECONDS)
        if failed:
            raise _find_cause(failed)
        if supervisor.children:
            raise LockstepError(f"The workers did not stop within {stop_seconds} seconds.", RESUME)
    return supervisor.signals[0] if supervisor.signals else None


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


def _find_cause(failed: list[ChildProcess]) -> LockstepError:
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
            return LockstepError(f"{child.describe_exit()}{hint}.", RESUME)
    return errors.get("lost") or LockstepError("The workers were stopped by SIGTERM.", RESUME)
