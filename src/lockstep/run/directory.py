"""The run directory: the files of one training."""

import fcntl
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from lockstep.errors import LockstepError
from lockstep.run import environment_variables


class RunDirectory:
    """The paths of a run's files, and the lock that keeps a second launch out."""

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path = path
        self.name = name or str(path)  # what a person calls it: a run on an object store goes by its address
        self.config = path / "config.yaml"
        self.choices = path / "choices.json"
        self.environment = path / "environment.json"
        self.data = path / "data.json"
        self.journal = path / "journal"
        self.tensorboard = path / "tensorboard"
        self.checkpoints = path / "checkpoints"
        self.console = path / "console.log"
        self.report = path / "report.html"
        self.report_text = path / "report.md"
        self.proof = path / "proof.json"
        self.tests = path / "tests.json"
        self.logs = path / "logs"
        self.streams = path / "streams.json"

    def create(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise LockstepError(
                f"{self.path} cannot be a run folder: there is a file in the way.",
                "Choose another --run folder.",
                code=2,
            ) from None
        except OSError as error:
            raise LockstepError(
                f"The run folder {self.path} cannot be made: {error.strerror}.", "Choose another --run folder."
            ) from None

    def lock(self, patience_seconds: float = 3.0) -> TextIO:
        """Locks the run while the returned file is open. A launch that was just killed may keep it a moment longer."""
        file = self._lock_file()
        deadline = time.monotonic() + patience_seconds
        while not self._try(file, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise self._taken(file)
            time.sleep(0.05)
        _sign(file, os.getpid())
        return file

    def share(self, launch: str, is_recorded: Callable[[], bool], patience_seconds: float) -> tuple[TextIO, bool]:
        """Locks the run for all workers of an elastic launch. Returns True for the first worker, which has the lock alone
        until it calls `let_in`; the others wait for that. `is_recorded` returns whether the records in the folder are
        this launch's."""
        file = self._lock_file()
        deadline, foreign = time.monotonic() + patience_seconds, time.monotonic() + 3.0
        while True:
            if self._try(file, fcntl.LOCK_EX) and not is_recorded():
                _sign(file, environment_variables.launcher_pid() or os.getpid(), f", launch {launch}")
                return file, True
            if self._try(file, fcntl.LOCK_SH) and is_recorded():
                return file, False
            fcntl.flock(file, fcntl.LOCK_UN)
            file.seek(0)
            if time.monotonic() > (deadline if launch in file.read() else foreign):
                raise self._taken(file)
            time.sleep(0.05)

    def let_in(self, file: TextIO) -> None:
        """Shares the lock with the other workers of the launch."""
        fcntl.flock(file, fcntl.LOCK_SH)

    def _lock_file(self) -> TextIO:
        try:
            return (self.path / ".lock").open("a+")
        except OSError as error:
            raise LockstepError(
                f"Nothing can be written to the run folder {self.path}: {error.strerror}.",
                "Free it or choose another --run folder.",
            ) from None

    def _try(self, file: TextIO, kind: int) -> bool:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        except OSError as error:
            raise LockstepError(
                f"The run folder {self.path} cannot be locked: {error.strerror}.",
                "Put it on a file system with file locks.",
            ) from None

    def _taken(self, file: TextIO) -> LockstepError:
        file.seek(0)
        return LockstepError(
            f"The run {self.name} is being trained right now ({file.read().strip() or 'unknown process'}).",
            "Wait for it, stop it, or choose another --run folder.",
        )

    def busy(self) -> bool:
        """Whether a process is training this run right now, as far as this machine can tell."""
        try:
            with (self.path / ".lock").open() as file:
                for kind in (fcntl.LOCK_SH, fcntl.LOCK_EX):  # workers of an elastic launch share it
                    fcntl.flock(file, kind | fcntl.LOCK_NB)
                return False
        except BlockingIOError:
            return True
        except OSError:
            return False


def _sign(file: TextIO, process: int, more: str = "") -> None:
    file.seek(0)
    file.truncate()
    file.write(f"process {process} on {socket.gethostname()}{more}\n")
    file.flush()
