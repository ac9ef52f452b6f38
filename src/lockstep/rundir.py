"""The run directory: where everything about one training lies."""

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import Any, TextIO

from lockstep.errors import LockstepError


class RunDirectory:
    """Names of the files of a run, and the lock that keeps a second launch out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.choices = path / "choices.json"
        self.environment = path / "environment.json"
        self.data = path / "data.json"
        self.journal = path / "journal"
        self.tensorboard = path / "tensorboard"
        self.checkpoints = path / "checkpoints"
        self.console = path / "console.log"

    def create(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise LockstepError(f"{self.path} is a file.", "Choose another --run folder.", code=2) from None
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
            except OSError:
                if time.monotonic() > deadline:
                    file.seek(0)
                    raise LockstepError(
                        f"The run {self.path} is being trained right now ({file.read().strip() or 'unknown process'}).",
                        "Wait for it, stop it, or choose another --run folder.",
                    ) from None
                time.sleep(0.05)
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        return file


def write_whole(path: Path, text: str) -> None:
    """Replaces a small file in one move, so that it is never seen half-written."""
    aside = path.with_name(f".{path.name}.partial")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def write_json(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """A JSON file of the run, or None when it is not there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise LockstepError(f"{path} is damaged: it is not JSON.", "Restore it, or start a new run.") from None
