"""A target for launchers: every process runs the line of Python that stands at its rank among the arguments."""

import os
import signal
import sys
import time
from pathlib import Path

from lockstep.errors import LockstepError, PortTaken, Unreachable
from lockstep.train.failures import LostPeer, OutOfMemory
from lockstep.train.worker import tell_launcher

IN_SCOPE = (os, signal, sys, time, LockstepError, PortTaken, LostPeer, OutOfMemory, Unreachable, tell_launcher)
preloaded: list[str] = []


def preload(*lines: str) -> None:
    """Runs the line after `preload:`, where there is one."""
    for line in lines:
        if line.startswith("preload:"):
            exec(line.removeprefix("preload:"))
            preloaded.append(line)


def write_value(*values: object) -> None:
    """Writes them to a file of this rank for the test, which finds it only when it is complete."""
    path = Path(os.environ["FOLDER"]) / f"value-{os.environ['RANK']}"
    path.with_suffix(".new").write_text(" ".join(str(value) for value in values))
    path.with_suffix(".new").rename(path)


def main(*lines: str) -> None:
    rank = int(os.environ["RANK"])
    exec(lines[rank], {**globals(), "rank": rank})
