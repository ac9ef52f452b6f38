"""Workers on this machine that come and go one by one, and the lighthouse at which they meet.

Each is a restart group of its own: when it dies, it alone is started again. torch's elastic agent, one per worker, would
also start a worker again that has said what is wrong, and would not hear signals in a thread.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from lockstep.errors import LockstepError, missing
from lockstep.launch.fixed import Stopped, free_port_or, threads
from lockstep.launch.supervisor import Member, heard

FRUITLESS = 3
"""A worker that died so often in a row before its first step is not started again."""


@dataclass
class Group:
    """One worker and its restarts."""

    member: Member
    restarts: int = 0
    fruitless: int = 0

    def told(self) -> LockstepError | None:
        """What the worker said is wrong. That it lost the others is no reason to give it up."""
        kind, words = self.member.told() or ("", None)
        return None if kind == "lost" else words


class Groups:
    """All workers of a launch, and the lighthouse. In `folder` workers leave marks and what is wrong."""

    def __init__(
        self, command: list[str], workers: int, lighthouse: list[str], restarts: int, environment: dict[str, str]
    ) -> None:
        self.command, self.lighthouse, self.restarts, self.environment = command, lighthouse, restarts, environment
        self.workers = workers
        self.folder = Path(environment["LOCKSTEP_START"])
        self.finished = 0
        self.failures: list[LockstepError] = []
        self.light = self._light()
        self.live = [Group(self._start(rank, 0)) for rank in range(workers)]

    def _light(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self.lighthouse, env=self.environment, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def _start(self, rank: int, restarts: int) -> Member:
        again = self.environment | {"LOCKSTEP_RESTARTS": str(restarts)}
        return Member.start(self.command, rank, self.workers, again, self.folder)

    def tend(self, stopping: bool) -> None:
        """Starts again what died, unless that is pointless or everything is about to end."""
        if self.light.poll() is not None:
            self.light = self._light()
        for group in [group for group in self.live if group.member.process.poll() is not None]:
            failure = group.told()
            if group.member.process.returncode == 0 or (stopping and failure is None):
                self.live.remove(group)
                self.finished += group.member.process.returncode == 0
                continue
            if failure is None:
                failure = self._again(group)
            if failure is not None:
                self.live.remove(group)
                self.failures.append(failure)
                (self.folder / f"ready-{group.member.rank}").touch()  # nobody need wait for it
                if self.live:
                    print(f"Worker {group.member.rank} is given up, the others go on. {failure}", file=sys.stderr)

    def _again(self, group: Group) -> LockstepError | None:
        fruitful = (self.folder / f"stepped-{group.member.rank}-{group.restarts}").exists()
        group.fruitless = 0 if fruitful else group.fruitless + 1
        if group.fruitless >= FRUITLESS or group.restarts >= self.restarts:
            often = f"{FRUITLESS} times in a row before its first step" if group.fruitless >= FRUITLESS else "too often"
            after = f"after {group.restarts} restart{'s' * (group.restarts != 1)}"
            return LockstepError(f"{group.member.end()}: it died {often}, {after}.", "See logs/ in the run folder.")
        group.restarts += 1
        print(f"{group.member.end()}; started again ({group.restarts} of {self.restarts} restarts).", file=sys.stderr)
        group.member = self._start(group.member.rank, group.restarts)
        return None

    def pass_on(self, number: int) -> None:
        for group in self.live:
            group.member.process.send_signal(number)


def launch(
    command: list[str],
    workers: int,
    restarts: int,
    dead_after_seconds: float,
    wait_seconds: float,
    port: int = 0,
    stop_seconds: int = 120,
) -> Stopped | None:
    """Runs `workers` copies of `command` (a program and its arguments) and waits. Each finds its place in RANK,
    WORLD_SIZE and TORCHFT_LIGHTHOUSE. Returns normally when at least one of them came to the end; SIGTERM and SIGINT are
    passed on to the workers, which then have `stop_seconds` to save."""
    if importlib.util.find_spec("torchft") is None:
        raise missing("strategy.name=resilient", "torchft", "resilient")
    port = free_port_or(port)
    lighthouse = [sys.executable, "-m", "lockstep.launch.lighthouse"]
    lighthouse += [str(port), str(wait_seconds), str(dead_after_seconds)]
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder, heard() as signals:
        environment = os.environ | {
            "WORLD_SIZE": str(workers),
            "LOCAL_WORLD_SIZE": str(workers),
            "OMP_NUM_THREADS": threads(workers),
            "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}",
            "LOCKSTEP_LAUNCHER": str(os.getpid()),
            "LOCKSTEP_LAUNCH": uuid.uuid4().hex,
            "LOCKSTEP_START": folder,
        }
        groups = Groups(command, workers, lighthouse, restarts, environment)
        deadline = None
        while groups.live:
            if signals and deadline is None:
                groups.pass_on(signals[0])
                deadline = time.monotonic() + stop_seconds
            elif deadline is not None and time.monotonic() > deadline:
                groups.pass_on(signal.SIGKILL)
            groups.tend(stopping=bool(signals))
            time.sleep(0.05)
        groups.light.kill()
        groups.light.wait()
    if groups.failures and not groups.finished:
        raise groups.failures[0]
    return Stopped(signals[0]) if signals else None
