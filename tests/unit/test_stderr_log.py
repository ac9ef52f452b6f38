"""What libraries write to stderr goes to a log; our own sentences reach the person."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep import stderr_log

PROGRAM = """
import logging, os, sys, warnings
from pathlib import Path
from lockstep.notices import warn
from lockstep.stderr_log import open_log, redirect_stderr
is_alone, folder = sys.argv[1] == "alone", Path(sys.argv[2])
try:
    with redirect_stderr(is_alone):
        os.write(2, b"before the run is known\\n")
        warn("for the person")
        open_log(folder / "logs", 1, 2)
        os.write(2, b"from a library\\n")
        warnings.warn("a raw warning")
        logging.getLogger("torch").warning("from a logger")
        {work}
except ZeroDivisionError:
    warn("it failed")
os.write(2, b"afterwards\\n")
warn("and after that")
"""


def run(folder: Path, alone: str, work: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.replace("{work}", work).replace("\\\\", "\\")
    words = [sys.executable, "-c", program, alone, str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("alone", ["alone", "one of several"])
def test_libraries_write_to_the_log_and_we_to_the_terminal(tmp_path: Path, alone: str) -> None:
    result = run(tmp_path, alone, "pass")
    assert result.stderr.splitlines() == ["for the person", "afterwards", "and after that"]
    log = (tmp_path / "logs" / "worker-0001.log").read_text().splitlines()
    assert log[:2] == ["before the run is known", "from a library"]
    assert any(line.endswith("UserWarning: a raw warning") for line in log)
    assert "from a logger" in log


def test_after_a_failure_libraries_of_one_of_several_processes_stay_in_the_log(tmp_path: Path) -> None:
    result = run(tmp_path, "one of several", "1 / 0")
    assert result.stderr.splitlines() == ["for the person", "it failed", "and after that"]
    assert (tmp_path / "logs" / "worker-0001.log").read_text().endswith("afterwards\n")
    result = run(tmp_path, "alone", "1 / 0")
    assert result.stderr.splitlines() == ["for the person", "it failed", "afterwards", "and after that"]


def test_a_crash_writes_its_stack_where_it_is_looked_for(tmp_path: Path) -> None:
    crash = "os.kill(os.getpid(), 11)"
    log = tmp_path / "logs" / "worker-0001.log"
    assert run(tmp_path, "one of several", crash).stderr.splitlines() == ["for the person"]
    assert "Fatal Python error: Segmentation fault" in log.read_text()
    assert "Fatal Python error: Segmentation fault" in run(tmp_path, "alone", crash).stderr


def test_a_log_in_which_nothing_was_written_is_removed(tmp_path: Path) -> None:
    with stderr_log.redirect_stderr(is_alone=True):
        stderr_log.open_log(tmp_path / "logs", 0, 1)
        assert (tmp_path / "logs" / "worker-0000.log").exists()
    assert not (tmp_path / "logs").exists()


def test_servers_have_logs_of_their_own_and_need_no_run_folder(tmp_path: Path) -> None:
    with stderr_log.redirect_stderr(is_alone=True):
        stderr_log.open_log(tmp_path / "elsewhere" / "logs", 2, 2)
        os.write(2, b"x")
        stderr_log.open_log(tmp_path / "logs", 2, 2)
    assert (tmp_path / "logs" / "server-0000.log").read_text() == "x"
    assert not (tmp_path / "elsewhere").exists()


def test_a_long_log_is_emptied_and_no_other_file_is(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "worker-0000.log"
    with stderr_log.redirect_stderr(is_alone=True):
        stderr_log.open_log(log.parent, 0, 1)
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
