"""Ends a process tree whole: also what has left its session, and what has lost its parent."""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

MOST_SECONDS = 10.0
"""A process that the kernel does not let go of in this time is left to the kernel."""


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent dies, where the system can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def list_descendants() -> list[int]:
    """Returns the processes that this one has started or adopted, and theirs, but not those that have ended."""
    import psutil

    pids = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                pids.append(process.pid)
    return pids


def kill_descendants() -> None:
    """Kills all descendants. Those that are started meanwhile are found in the next round."""
    deadline = time.monotonic() + MOST_SECONDS
    while (pids := list_descendants()) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)
