"""What a library writes to descriptor 2 stays away from the person; what Python writes does not."""

import os
import subprocess
import sys
from pathlib import Path

from lockstep import stderr_log

PROGRAM = """
import os, sys
from lockstep.stderr_log import redirect_stderr
with redirect_stderr(sys.argv[1]):
    os.write(2, b"from a library\\n")
    print("for the person", file=sys.stderr)
os.write(2, b"afterwards\\n")
print("and after that", file=sys.stderr)
"""


def test_descriptor_2_is_redirected_and_restored(tmp_path: Path) -> None:
    log = tmp_path / "log"
    result = subprocess.run([sys.executable, "-c", PROGRAM, str(log)], capture_output=True, text=True, check=True)
    assert result.stderr.splitlines() == ["for the person", "afterwards", "and after that"]
    assert log.read_text() == "from a library\n"


def test_a_long_log_is_emptied_and_no_other_file_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with stderr_log.redirect_stderr(log):
        os.write(2, b"x" * stderr_log.MAX_BYTES)
        stderr_log.truncate_if_long()
        assert log.stat().st_size == stderr_log.MAX_BYTES
        os.write(2, b"y")
        stderr_log.truncate_if_long()
        os.write(2, b"z")
    assert log.read_text() == "z"
    before = os.fstat(2).st_size
    stderr_log.truncate_if_long()
    assert os.fstat(2).st_size == before
