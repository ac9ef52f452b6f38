"""The run directory: where everything about one training lies."""

import fcntl
import os
import socket
import time
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
        try:
            file = (self.path / ".lock").open("a+")
        except OSError as error:
            raise LockstepError(
                f"Nothing can be written to the run folder {self.path}: {error.strerror}.",
                "Free it or choose another --run folder.",
            ) from None
        deadline = time.monotonic() + patience_seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    file.seek(0)
                    raise LockstepError(
                        f"The run {self.name} is being trained right now ({file.read().strip() or 'unknown process'}).",
                        "Wait for it, stop it, or choose another --run folder.",
                    ) from None
                time.sleep(0.05)
            except OSError as error:
                raise LockstepError(
                    f"The run folder {self.path} cannot be locked: {error.strerror}.",
                    "Put it on a file system that knows file locks.",
                ) from None
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        return file

    def busy(self) -> bool:
        """Is somebody training this run right now, as far as this machine can tell?"""
        try:
            with (self.path / ".lock").open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
        except BlockingIOError:
            return True
        except OSError:
            return False
