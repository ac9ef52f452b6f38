"""Keeps a library that writes to file descriptor 2 whatever one sets out of a person's terminal."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT = 2**20
_aside = False


@contextmanager
def aside(log: Path | str) -> Iterator[None]:
    """Descriptor 2 leads to a file, where a crash leaves its words too; Python's `sys.stderr` still reaches the person."""
    global _aside
    before, person = sys.stderr, os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 2)
    os.close(file)
    sys.stderr = os.fdopen(person, "w", buffering=1, encoding=before.encoding, errors=before.errors)
    _aside = True
    try:
        yield
    finally:
        _aside = False
        os.dup2(person, 2)
        sys.stderr.close()
        sys.stderr = before


def trim() -> None:
    """Starts the file anew when it has become long: what was said last matters, and a long run says a lot."""
    if _aside:
        facts = os.fstat(2)
        if stat.S_ISREG(facts.st_mode) and facts.st_size > LIMIT:
            os.ftruncate(2, 0)
