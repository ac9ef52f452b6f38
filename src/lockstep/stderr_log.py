"""Keeps what libraries write to stderr away from a person's terminal: it goes to a log file of the run.

Descriptor 2 is redirected, so that C++ code, Python's warnings and loggers are caught alike. Our own sentences and the
progress bar go to `notices.terminal()`, which stays what it was.
"""

import faulthandler
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lockstep import notices

MAX_BYTES = 2**20
_is_redirected = False
_path: Path | None = None


@contextmanager
def redirect_stderr(is_alone: bool) -> Iterator[None]:
    """Redirects descriptor 2 for the duration of the block: to memory at first, then to the file that `open_log` names.

    After a failure the descriptor stays redirected unless the process `is_alone`: libraries of a process that lost its
    peers write until it ends. A crash writes the stack of every thread, on the terminal if the process `is_alone`.
    """
    global _is_redirected
    sys.stderr.flush()
    terminal, before = os.dup(2), faulthandler.is_enabled()
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
    stream = os.fdopen(terminal, "w", buffering=1, encoding=sys.stderr.encoding, errors=sys.stderr.errors)
    notices.set_terminal(stream)
    faulthandler.enable(terminal if is_alone else 2)
    _is_redirected = True
    is_done = False
    try:
        yield
        is_done = True
    finally:
        if is_done or is_alone:
            if not before:
                faulthandler.disable()
            _close_log()
            os.dup2(terminal, 2)
            notices.set_terminal(None)
            stream.close()
            _is_redirected = False


def open_log(folder: Path, rank: int, workers: int) -> None:
    """Appends what was written so far to the log of this process in `folder`, and redirects descriptor 2 to it. The servers
    have the last ranks; one may run on a machine without the run folder, and then has no log."""
    global _path
    if not folder.parent.is_dir():
        return
    folder.mkdir(exist_ok=True)
    path = folder / (f"worker-{rank:04d}.log" if rank < workers else f"server-{rank - workers:04d}.log")
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    sys.stderr.flush()
    os.write(file, os.pread(2, MAX_BYTES, 0))
    os.dup2(file, 2)
    os.close(file)
    _path = path


def describe_log() -> str:
    """Returns a sentence that says where the log of this process is, if it has one that is not empty."""
    sys.stderr.flush()
    return f"What libraries wrote is in {_path}." if _path is not None and os.fstat(2).st_size else ""


def _close_log() -> None:
    """Removes a log in which nothing was written."""
    global _path
    sys.stderr.flush()
    if _path is not None and os.fstat(2).st_size == 0:
        with suppress(OSError):
            _path.unlink()
            _path.parent.rmdir()
    _path = None


def truncate_if_long() -> None:
    """Empties the log file when it has more than MAX_BYTES: only the last messages matter."""
    if _is_redirected:
        facts = os.fstat(2)
        if stat.S_ISREG(facts.st_mode) and facts.st_size > MAX_BYTES:
            os.ftruncate(2, 0)
