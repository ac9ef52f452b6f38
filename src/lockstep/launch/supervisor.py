"""One process of a launch that is watched by itself, so that its end need not be the end of the others."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from lockstep.errors import LockstepError


@dataclass
class Member:
    rank: int
    name: str  # for a person
    errors: Path  # where it says what is wrong
    process: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls, command: list[str], rank: int, workers: int, environment: dict[str, str], folder: Path) -> "Member":
        """In a session of its own: Ctrl-C reaches the launcher, which passes it on."""
        errors = folder / f"{rank}.json"
        errors.unlink(missing_ok=True)
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "TORCHELASTIC_ERROR_FILE": str(errors)}
        launcher = {"LOCKSTEP_LAUNCHER": str(os.getpid())}
        process = subprocess.Popen(
            command, env=environment | launcher | own, stderr=sys.stderr.fileno(), start_new_session=True
        )
        name = f"Worker {rank}" if rank < workers else f"Server {rank - workers}"
        return cls(rank, name, errors, process)

    def told(self) -> tuple[str, LockstepError] | None:
        """What it said about its end (its kind, and the words), if it could still say something."""
        try:
            facts = json.loads(json.loads(self.errors.read_text(encoding="utf-8"))["message"])
            return facts["kind"], LockstepError(facts["message"], facts["remedy"], facts["code"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def end(self) -> str:
        code = self.process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{self.name} (process {self.process.pid}) {how}"


@contextmanager
def heard() -> Iterator[list[int]]:
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
