"""How one process among several starts and ends."""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from lockstep import stderr_log
from lockstep.errors import LockstepError
from lockstep.notices import warn

MOST_CHARACTERS = 160
"""Of the text of an exception, in a sentence."""


def die_with_parent(parent: int | None = None) -> None:
    """Asks the kernel to kill this process when its parent dies, so that no orphan continues to write to the run. Ends it
    at once if its parent is not the process `parent`, which then has died already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if parent is not None and os.getppid() != parent:
            os._exit(1)


def run_then_exit(
    work: Callable[[], object],
    report: Callable[[LockstepError], None],
    note_crash: Callable[[Exception], None] = lambda error: None,
) -> NoReturn:
    """Calls `work`, reports its error if it raises one, and ends this process without Python's cleanup. `note_crash` gets
    an exception that nobody expected, before its traceback is printed.

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
    except Exception as error:
        note_crash(error)
        warn("\n".join(filter(None, [traceback.format_exc().rstrip(), stderr_log.describe_log()])))
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def describe_exception(error: Exception) -> str:
    """Returns the type and the first line of an exception, and the innermost line of this package that it passed."""
    package = str(Path(__file__).parent)
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((frame for frame in reversed(frames) if frame.filename.startswith(package)), None)
    text = next(iter(str(error).strip().splitlines()), "")[:MOST_CHARACTERS]
    at = f", at {frame.name} ({Path(frame.filename).name}:{frame.lineno})" if frame else ""
    return f"{type(error).__name__}{f': {text}' * bool(text)}{at}"
