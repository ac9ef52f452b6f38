"""Workers and servers on this machine that do without a worker that dies, unless it is the first."""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from lockstep.errors import LockstepError, PortTaken
from lockstep.launch.local import AGAIN, Stopped, free_port_or, threads
from lockstep.launch.member import Member, heard

GRACE_SECONDS = 5.0
"""After one has failed that all need, the others may say so themselves before they are killed."""


def launch(command: list[str], workers: int, servers: int, port: int = 0, stop_seconds: int = 120) -> Stopped | None:
    """Like `local.launch`, but goes on when a worker dies that the others do not need."""
    try:
        return _launch(command, workers, servers, free_port_or(port), stop_seconds)
    except PortTaken:
        return _launch(command, workers, servers, free_port_or(port), stop_seconds)


def _launch(command: list[str], workers: int, servers: int, port: int, stop_seconds: int) -> Stopped | None:
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
            failure = _watch(members, range(1, workers), signals, stop_seconds)
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
            if member.process.returncode == 0:
                continue
            if member.rank not in spare or member.told() is not None:
                return _cause(member, members)
            print(f"{member.end()}; the others go on.", file=sys.stderr)
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
    if "error" in told:
        return told["error"]
    if "port" in told:
        return PortTaken(told["port"].message, told["port"].remedy, told["port"].code)
    killed = [member for member in ended if member.process.returncode == -signal.SIGKILL and member.told() is None]
    if killed:
        return LockstepError(f"{killed[0].end()} (out of memory?).", AGAIN)
    return told.get("lost") or LockstepError(f"{first.end()}; see its message above.", AGAIN)
