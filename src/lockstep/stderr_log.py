"""Redirects file descriptor 2 to a log file, away from libraries that write to a person's terminal."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_BYTES = 2**20
_is_redirected = False


@contextmanager
def redirect_stderr(path: Path | str) -> Iterator[None]:
    """Redirects descriptor 2 to a file for the duration of the block. The messages of a crash end there too. Python's
    `sys.stderr` still writes to the terminal."""
    global _is_redirected
    before, terminal = sys.stderr, os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 2)
    os.close(file)
    sys.stderr = os.fdopen(terminal, "w", buffering=1, encoding=before.encoding, errors=before.errors)
    _is_redirected = True
    try:
        yield
    finally:
        _is_redirected = False
        os.dup2(terminal, 2)
        sys.stderr.close()
        sys.stderr = before


def truncate_if_long() -> None:
    """Empties the log file when it has more than MAX_BYTES: only the last messages matter."""
    if _is_redirected:
        facts = os.fstat(2)
        if stat.S_ISREG(facts.st_mode) and facts.st_size > MAX_BYTES:
            os.ftruncate(2, 0)
