"""Workers and servers on this machine, each a process that is watched. It knows a command, not what it does.

Several machines have engines of their own (torchrun, mpirun, Slurm): they start the same command. torch's elastic agent
would do the same here, but importing it takes as long as importing torch in a worker, before the workers can start.
"""

import errno
import os
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from lockstep.errors import LockstepError, PortTaken
from lockstep.launch.supervisor import Member, heard

AGAIN = "Start the same command again: it goes on from the last checkpoint."
GRACE_SECONDS = 5.0
"""After one has failed that all need, the others may say so themselves before they are killed."""


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
    command: list[str],
    workers: int,
    servers: int = 0,
    port: int = 0,
    do_without: bool = False,
    stop_seconds: int = 120,
) -> Stopped | None:
    """Runs a copy of `command` (a program and its arguments) for each worker and server and waits. Each finds its place
    in RANK, WORLD_SIZE and so on; the servers come last. Returns normally when all of them succeed, or all but workers
    that the others can do without: any but the first. SIGTERM and SIGINT are passed on to them, and the workers then have
    `stop_seconds` to save."""
    spare = range(1, workers) if do_without else range(0)
    try:
        return _launch(command, workers, servers, free_port_or(port), spare, stop_seconds)
    except PortTaken:
        return _launch(command, workers, servers, free_port_or(port), spare, stop_seconds)


def _launch(
    command: list[str], workers: int, servers: int, port: int, spare: range, stop_seconds: int
) -> Stopped | None:
    count = workers + servers
    environment = os.environ | {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": threads(count),
    }
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder, heard() as signals:
        members = [Member.start(command, rank, workers, environment, Path(folder)) for rank in range(count)]
        try:
            failure = _watch(members, spare, signals, stop_seconds)
        finally:
            for member in members:
                member.process.kill()
                member.process.wait()
        if failure is not None:
            raise failure
    return Stopped(signals[0]) if signals else None


def _watch(members: list[Member], spare: range, signals: list[int], stop_seconds: int) -> LockstepError | None:
    """Until all have ended, or one that all need has failed: then what to say of it."""
    live, deadline = list(members), float("inf")
    passed_on = False
    while live:
        if signals and not passed_on:
            for member in live:
                member.process.send_signal(signals[0])
            passed_on, deadline = True, time.monotonic() + stop_seconds
        for member in [member for member in live if member.process.poll() is not None]:
            live.remove(member)
            kind, _ = member.told() or ("", None)
            if member.process.returncode == 0 or (signals and kind in ("", "lost")):
                continue  # a signal may come before a worker listens
            if member.rank not in spare or kind not in ("", "memory"):
                return _cause(member, members)
            why = " (out of memory)" if kind else ""
            print(f"{member.end()}{why}; the others go on.", file=sys.stderr)
        if time.monotonic() > deadline:
            return LockstepError(f"The workers did not stop within {stop_seconds} seconds.", AGAIN)
        time.sleep(0.05)
    return None


def _cause(first: Member, members: list[Member]) -> LockstepError:
    """What a member says of itself comes first, then the signal that killed one, then the connection lost by it."""
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline and any(member.process.poll() is None for member in members):
        time.sleep(0.05)
    ended = [first, *(member for member in members if member is not first and member.process.poll())]
    told = dict(reversed([said for member in ended if (said := member.told()) is not None]))
    for kind in ("error", "memory"):
        if kind in told:
            return told[kind]
    if "port" in told:
        return PortTaken(told["port"].message, told["port"].remedy, told["port"].code)
    silent = [member for member in ended if member.told() is None and member.process.returncode != -signal.SIGTERM]
    if silent:
        code = silent[0].process.returncode
        hint = " (out of memory?)" if code == -signal.SIGKILL else "; see its message above" if code > 0 else ""
        return LockstepError(f"{silent[0].end()}{hint}.", AGAIN)
    return told.get("lost") or LockstepError("The workers were stopped by SIGTERM.", AGAIN)
