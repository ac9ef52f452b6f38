"""Workers on this machine, started and watched by torch's elastic agent. It knows a command, not what it does."""

import errno
import gc
import json
import logging
import os
import signal
import socket
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.errors import LockstepError, PortTaken

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

AGAIN = "Start the same command again: it goes on from the last checkpoint."


@dataclass(frozen=True)
class Stopped:
    """The workers ended because the launcher was told to stop."""

    signal: int


def free_port_or(port: int) -> int:
    """`port`, checked to be free; 0 finds one."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            taken = "is already in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
            raise LockstepError(
                f"Port {port} {taken}.", "Give another with --port, or leave it out to take a free one.", code=2
            ) from None
        return int(probe.getsockname()[1])


def threads(processes: int) -> str:
    """OMP_NUM_THREADS of each, unless somebody has set it."""
    return os.environ.get("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // processes)))


def launch(
    command: list[str], workers: int, servers: int = 0, port: int = 0, stop_seconds: int = 120
) -> Stopped | None:
    """Runs a copy of `command` (a program and its arguments) for each worker and server and waits. Each finds its place
    in RANK, WORLD_SIZE and so on; the servers come last. Returns normally when all of them succeed; SIGTERM and SIGINT
    are passed on to them, and the workers then have `stop_seconds` to save."""
    try:
        return _launch(command, workers, servers, free_port_or(port), stop_seconds)
    except PortTaken:
        return _launch(command, workers, servers, free_port_or(port), stop_seconds)


def _launch(command: list[str], workers: int, servers: int, port: int, stop_seconds: int) -> Stopped | None:
    processes = workers + servers
    os.environ.update(
        LOCKSTEP_LAUNCHER=str(os.getpid()),
        OMP_NUM_THREADS=threads(processes),
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",  # workers of a launch must not meet in the agent's own store
    )
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    gc.disable()  # torch's import makes many objects and no garbage

    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    gc.enable()
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        role="worker",
        rdzv_backend="c10d",
        rdzv_endpoint=f"127.0.0.1:{port}",
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.1,
        signals_to_handle="SIGTERM,SIGINT" + (",SIGHUP" if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else ""),
        shutdown_timeout=stop_seconds,
    )
    logging.disable(logging.WARNING)  # the agent's remarks on a stop read like errors
    try:
        elastic_launch(config, command[0])(*command[1:])
    except SignalException as stopped:
        return Stopped(stopped.sigval)
    except ChildFailedError as error:
        raise _root_cause(error, workers) from None
    finally:
        logging.disable(logging.NOTSET)
    return None


def member_name(rank: int, workers: int) -> str:
    return f"Worker {rank}" if rank < workers else f"Server {rank - workers}"


def _root_cause(error: "ChildFailedError", workers: int) -> LockstepError:
    """One sentence out of several workers' ends: what a worker says of itself, else the signal that killed one, else
    the connection that the others lost because of it."""
    told: dict[str, LockstepError] = {}
    others = []
    for rank, failure in error.failures.items():  # in the order in which the agent saw them
        try:
            facts = json.loads(failure.message)
            told.setdefault(facts["kind"], LockstepError(facts["message"], facts["remedy"], facts["code"]))
        except (ValueError, TypeError):
            others.append((rank, failure))
    if "error" in told:
        return told["error"]
    if "port" in told:
        return PortTaken(told["port"].message, told["port"].remedy, told["port"].code)
    for rank, failure in others:
        worker = f"{member_name(rank, workers)} (process {failure.pid})"
        if failure.exitcode >= 0:
            return LockstepError(f"{worker} ended with exit code {failure.exitcode}; see its message above.", AGAIN)
        if -failure.exitcode != signal.SIGTERM:
            name = signal.Signals(-failure.exitcode).name
            memory = " (out of memory?)" if name == "SIGKILL" else ""
            return LockstepError(f"{worker} was killed by {name}{memory}.", AGAIN)
    return told.get("lost") or LockstepError("The workers were stopped by SIGTERM.", AGAIN)
