"""How one process among several ends."""

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, os
from lockstep.errors import LockstepError
from lockstep.notices import print_error
from lockstep.process import run_then_exit

def work():
    print("working")
    {work}

atexit.register(os.abort)
run_then_exit(work, print_error)
"""


@pytest.mark.parametrize(
    ("work", "code", "message"),
    [
        ("pass", 0, ""),
        ("raise LockstepError('No room.', 'Make some.', 3)", 3, "Error: No room.\n       Make some.\n"),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(143)", 143, ""),
        ("raise KeyboardInterrupt", 130, ""),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
    ],
)
def test_a_worker_ends_without_the_cleanup_of_python(work: str, code: int, message: str) -> None:
    words = [sys.executable, "-c", PROGRAM.format(work=work)]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (code, "working\n")
    assert result.stderr.endswith(message)
    assert bool(result.stderr) == bool(message)
