"""Programs that keep cores busy beside a test."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

BURNER = "while True: sum(range(100000))"


@contextmanager
def burn(count: int = 1) -> Iterator[list[psutil.Process]]:
    """Runs programs beside this one that each keep a core busy. They are children of a process that has ended."""
    start = f"import subprocess as s, sys; print(s.Popen([sys.executable, '-c', {BURNER!r}], stdout=s.DEVNULL).pid)"
    started = [subprocess.run([sys.executable, "-c", start], stdout=subprocess.PIPE, check=True) for _ in range(count)]
    burners = [psutil.Process(int(one.stdout)) for one in started]
    try:
        yield burners
    finally:
        for burner in burners:
            burner.kill()
