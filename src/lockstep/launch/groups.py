"""Workers on this machine that come and go one by one, and the lighthouse at which they meet.

Each is a restart group of its own: when it dies, it alone is started again. torch's elastic agent, one per worker, would
also start a worker again that has said what is wrong, and would not hear signals in a thread.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from lockstep.chatter import aside
from lockstep.errors import LockstepError
from lockstep.launch.local import Stopped

if TYPE_CHECKING:
    from torch.distributed import TCPStore

FRUITLESS = 3
"""A worker that died so often in a row before its first step is not started again."""


@dataclass
class Group:
    """One worker and its restarts."""

    rank: int
    errors: Path  # where it says what is wrong
    process: "subprocess.Popen[bytes]"
    restarts: int = 0
    fruitless: int = 0

    def told(self) -> LockstepError | None:
        """What the worker said is wrong. That it lost the others is no reason to give it up."""
        try:
            facts = json.loads(json.loads(self.errors.read_text(encoding="utf-8"))["message"])
            return None if facts["kind"] == "lost" else LockstepError(facts["message"], facts["remedy"], facts["code"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def end(self) -> str:
        code = self.process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"Worker {self.rank} (process {self.process.pid}) {how}"


class Groups:
    """All workers of a launch."""

    def __init__(
        self,
        command: list[str],
        workers: int,
        restarts: int,
        environment: dict[str, str],
        folder: str,
        store: "TCPStore",
    ) -> None:
        self.command, self.restarts, self.environment = command, restarts, environment
        self.folder, self.store = Path(folder), store
        self.finished = 0
        self.failures: list[LockstepError] = []
        self.live = [Group(rank, self.folder / f"{rank}.json", self._start(rank, 0)) for rank in range(workers)]

    def _start(self, rank: int, restarts: int) -> "subprocess.Popen[bytes]":
        (self.folder / f"{rank}.json").unlink(missing_ok=True)
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCKSTEP_RESTARTS": str(restarts)}
        own["TORCHELASTIC_ERROR_FILE"] = str(self.folder / f"{rank}.json")
        # A session of its own: Ctrl-C reaches the launcher, which passes it on.
        return subprocess.Popen(
            self.command, env=self.environment | own, stderr=sys.stderr.fileno(), start_new_session=True
        )

    def tend(self, stopping: bool) -> None:
        """Starts again what died, unless that is pointless or everything is about to end."""
        for group in [group for group in self.live if group.process.poll() is not None]:
            failure = group.told()
            if group.process.returncode == 0 or (stopping and failure is None):
                self.live.remove(group)
                self.finished += group.process.returncode == 0
                continue
            if failure is None:
                failure = self._again(group)
            if failure is not None:
                self.live.remove(group)
                self.failures.append(failure)
                self.store.set(f"ready/{group.rank}", "")  # nobody need wait for it
                if self.live:
                    print(f"Worker {group.rank} is given up, the others go on. {failure}", file=sys.stderr)

    def _again(self, group: Group) -> LockstepError | None:
        fruitful = self.store.check([f"stepped/{group.rank}/{group.restarts}"])
        group.fruitless = 0 if fruitful else group.fruitless + 1
        if group.fruitless >= FRUITLESS or group.restarts >= self.restarts:
            often = f"{FRUITLESS} times in a row before its first step" if group.fruitless >= FRUITLESS else "too often"
            after = f"after {group.restarts} restart{'s' * (group.restarts != 1)}"
            return LockstepError(f"{group.end()}: it died {often}, {after}.", "See logs/ in the run folder.")
        group.restarts += 1
        print(f"{group.end()}; started again ({group.restarts} of {self.restarts} restarts).", file=sys.stderr)
        group.process = self._start(group.rank, group.restarts)
        return None

    def pass_on(self, number: int) -> None:
        for group in self.live:
            group.process.send_signal(number)


def launch(
    command: list[str],
    workers: int,
    restarts: int,
    dead_after_seconds: float,
    wait_seconds: float,
    stop_seconds: int = 120,
) -> Stopped | None:
    """Runs `workers` copies of `command` (a program and its arguments) and waits. Each finds its place in RANK,
    WORLD_SIZE and TORCHFT_LIGHTHOUSE. Returns normally when at least one of them came to the end; SIGTERM and SIGINT are
    passed on to the workers, which then have `stop_seconds` to save."""
    gc.disable()  # torch's import makes many objects and no garbage
    try:
        from torch.distributed import TCPStore
        from torchft.coordination import LighthouseServer
    except ModuleNotFoundError as error:
        if error.name != "torchft":
            raise
        raise LockstepError(
            "strategy.name=resilient needs torchft, which is not installed.",
            "pip install 'lockstep-train[resilient]'",
            code=2,
        ) from None
    gc.enable()
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with aside(os.devnull), tempfile.TemporaryDirectory(prefix="lockstep-") as folder, _heard() as heard:
        lighthouse = LighthouseServer(
            bind="127.0.0.1:0",
            min_replicas=1,
            join_timeout_ms=round(1000 * wait_seconds),  # for one that lives but evaluates or saves
            heartbeat_timeout_ms=round(1000 * dead_after_seconds),
        )
        environment = os.environ | {
            "WORLD_SIZE": str(workers),
            "LOCAL_WORLD_SIZE": str(workers),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // workers))),
            "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{lighthouse.address().rpartition(':')[2]}",
            "LOCKSTEP_LAUNCHER": str(os.getpid()),
            "LOCKSTEP_LAUNCH": uuid.uuid4().hex,
            "LOCKSTEP_START": f"127.0.0.1:{store.port}",
        }
        groups = Groups(command, workers, restarts, environment, folder, store)
        deadline = None
        while groups.live:
            if heard and deadline is None:
                groups.pass_on(heard[0])
                deadline = time.monotonic() + stop_seconds
            elif deadline is not None and time.monotonic() > deadline:
                groups.pass_on(signal.SIGKILL)
            groups.tend(stopping=bool(heard))
            time.sleep(0.05)
        lighthouse.shutdown()
    if groups.failures and not groups.finished:
        raise groups.failures[0]
    return Stopped(heard[0]) if heard else None


@contextmanager
def _heard() -> Iterator[list[int]]:
    """The signals to stop that came; SIGHUP too, unless nohup hides it."""
    numbers: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        numbers.append(number)

    hidden = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    listened = (signal.SIGTERM, signal.SIGINT) if hidden else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, remember) for number in listened}
    try:
        yield numbers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
