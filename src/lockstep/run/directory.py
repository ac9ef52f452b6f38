"""The run directory: where everything about one training lies."""

import fcntl
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from lockstep.errors import LockstepError


class RunDirectory:
    """Names of the files of a run, and the lock that keeps a second launch out."""

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
        self.logs = path / "logs"

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
        """Held as long as the returned file is open. A launch that was just killed may hold it a moment longer."""
        file = self._lock_file()
        deadline = time.monotonic() + patience_seconds
        while not self._try(file, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise self._taken(file)
            time.sleep(0.05)
        _sign(file, os.getpid())
        return file

    def share(self, launch: str, settled: Callable[[], bool], patience_seconds: float) -> tuple[TextIO, bool]:
        """The lock of a launch whose workers come and go: they hold it together. True: this worker is the first and
        holds it alone until it calls `let_in`; the others wait for that. `settled` tells whether the records in the
        folder are this launch's."""
        file = self._lock_file()
        deadline, foreign = time.monotonic() + patience_seconds, time.monotonic() + 3.0
        while True:
            if self._try(file, fcntl.LOCK_EX) and not settled():
                _sign(file, int(os.environ.get("LOCKSTEP_LAUNCHER", os.getpid())), f", launch {launch}")
                return file, True
            if self._try(file, fcntl.LOCK_SH) and settled():
                return file, False
            fcntl.flock(file, fcntl.LOCK_UN)
            file.seek(0)
            if time.monotonic() > (deadline if launch in file.read() else foreign):
                raise self._taken(file)
            time.sleep(0.05)

    def let_in(self, file: TextIO) -> None:
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
                "Put it on a file system that knows file locks.",
            ) from None

    def _taken(self, file: TextIO) -> LockstepError:
        file.seek(0)
        return LockstepError(
            f"The run {self.name} is being trained right now ({file.read().strip() or 'unknown process'}).",
            "Wait for it, stop it, or choose another --run folder.",
        )

    def busy(self) -> bool:
        """Is somebody training this run right now, as far as this machine can tell?"""
        try:
            with (self.path / ".lock").open() as file:
                for kind in (fcntl.LOCK_SH, fcntl.LOCK_EX):  # those who hold it together let others share it
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
