"""A process and the one that started it."""

import ctypes
import os
import signal
import sys


def restarts() -> int:
    """How often the launcher, ours or torchrun, has started this worker again."""
    return int(os.environ.get("LOCKSTEP_RESTARTS") or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its launcher dies, so that no orphan goes on writing the run."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        launcher = os.environ.get("LOCKSTEP_LAUNCHER")
        if launcher is not None and os.getppid() != int(launcher):  # it died before we asked
            os._exit(1)
