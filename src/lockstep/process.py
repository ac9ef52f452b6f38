"""How one process among several starts and ends."""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from lockstep import stderr_log
from lockstep.errors import LockstepError
from lockstep.notices import warn


def die_with_parent(parent: int | None = None) -> None:
    """Asks the kernel to kill this process when its parent dies, so that no orphan continues to write to the run. Ends it
    at once if its parent is not the process `parent`, which then has died already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if parent is not None and os.getppid() != parent:
            os._exit(1)


def run_then_exit(work: Callable[[], object], report: Callable[[LockstepError], None]) -> NoReturn:
    """Calls `work`, reports its error if it raises one, and ends this process without Python's cleanup.

    The other processes notice a failure by this exit, so it must not wait for anything. Gloo's threads may also still
    free tensors of the last collective: after Python's cleanup that would abort a finished run.
    """
    code = 0
    try:
        work()
    except LockstepError as error:
        report(error)
        code = error.code
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    except KeyboardInterrupt:
        code = 130
    except Exception:
        warn("\n".join(filter(None, [traceback.format_exc().rstrip(), stderr_log.describe_log()])))
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
