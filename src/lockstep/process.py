"""A process and the one that started it."""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from lockstep.errors import LockstepError


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


def leave_after(work: Callable[[], object], tell: Callable[[LockstepError], None]) -> NoReturn:
    """Does the work of one of several processes and ends this one at once, before Python takes itself apart: the others
    learn of a failure by that, and gloo's threads, which free the tensors of the last collective when they come to it,
    would meet a Python that is gone and end a finished run in SIGABRT."""
    code = 0
    try:
        work()
    except LockstepError as error:
        tell(error)
        code = error.code
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    except KeyboardInterrupt:
        code = 130
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
