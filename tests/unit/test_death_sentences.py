"""How the death of a worker is explained, and what control groups say: made-up folders, and real processes."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lockstep.heartbeat import Heartbeat
from lockstep.launch.control_group import ROOT, find_control_group
from lockstep.launch.describe_death import Death, describe_death
from lockstep.launch.memory_kills import MemoryKills
from lockstep.launch.process_state import describe_memory, read_state
from lockstep.launch.supervisor import ChildProcess
from lockstep.process import describe_exception
from lockstep.train.worker import tell_crash

BEAT = Heartbeat(60, 3, "backward", 0.0, 0.1)


def run_child(program: str, tmp_path: Path, kills: MemoryKills | None = None, logs: Path | None = None) -> Death:
    """Runs a program to its end and returns how it died."""
    child = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    child.wait()
    return describe_death(
        ChildProcess("Worker 1", child, 1, tmp_path / "1.json"), kills or MemoryKills(), {1: BEAT}, logs
    )


def test_a_kill_is_told_from_the_kernels_own(tmp_path: Path) -> None:
    death = run_child("import os; os.kill(os.getpid(), 9)", tmp_path)
    assert (death.evidence, death.phase, death.step) == ("supported", "backward", 60)
    assert "was killed by SIGKILL in backward of step 60, which a person or a program sent" in death.sentence
    assert death.sentence.endswith("the kernel has killed nothing for lack of memory (supported).")


def test_an_exit_without_an_error_is_explained(tmp_path: Path) -> None:
    death = run_child("raise SystemExit(3)", tmp_path)
    assert (
        "ended with exit code 3 in backward of step 60 and did not say why: its code called exit(3)" in death.sentence
    )


def test_the_line_of_a_crash_comes_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "worker-0001.log"
    program = f"""
import faulthandler, os
faulthandler.enable(open({str(log)!r}, "w"))
def crash():
    os.abort()
crash()
"""
    death = run_child(program, tmp_path, logs=tmp_path)
    assert (
        "was killed by SIGABRT in backward of step 60, at crash (<string>:5); see logs/worker-0001.log"
        in death.sentence
    )
    assert death.evidence == "established"


MISMATCH = (
    "[enforce fail at gloo/pair.cc:456] op.preamble.length <= op.nbytes. 31680 vs 8. Received data size is wrong."
)
SKIPPED = r"Worker 0 skipped an exchange: it is ahead of the others, in .*\. Worker 1 .* SIGABRT .* \(supported\)\."
OWN = r"Worker 1 .* SIGABRT .*: it is ahead of the others, in .*, so it skipped an exchange \(supported\)\."
UNKNOWN = r"Worker 1 .* SIGABRT .*, because it got data of another exchange: .* \(which one is unknown\)\."


@pytest.mark.parametrize(
    ("places", "culprit", "sentence"),
    [
        ({0: (61, 1), 1: (60, 3)}, 0, SKIPPED),
        ({0: (60, 4), 1: (60, 3)}, 0, SKIPPED),
        ({0: (60, 3), 1: (60, 4)}, 1, OWN),
        ({0: (60, 3), 1: (60, 3)}, 1, UNKNOWN),
        ({0: (60, 4), 1: (60, 3), 2: (60, 4)}, 1, UNKNOWN),
    ],
)
def test_a_skipped_exchange_is_recognized_when_it_crashes_another_worker(
    tmp_path: Path, places: dict[int, tuple[int, int]], culprit: int, sentence: str
) -> None:
    lines = f"  what():  {MISMATCH}\nFatal Python error: Aborted\n\nThread 0x7f (most recent call first):\n"
    (tmp_path / "worker-0001.log").write_text(lines + '  File "/a/c10d.py", line 3252 in all_reduce\n')
    child = subprocess.Popen([sys.executable, "-c", "import os; os.abort()"])
    child.wait()
    beats = {rank: Heartbeat(*place, "merge", 0.0, 0.1) for rank, place in places.items()}
    death = describe_death(ChildProcess("Worker 1", child, 1), MemoryKills(), beats, tmp_path)
    assert death.rank == culprit
    assert re.fullmatch(sentence, death.sentence)


def test_an_exception_is_named_with_its_text_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "1.json"))
    with pytest.raises(TypeError) as crash:
        find_control_group(0, processes=None)  # type: ignore[arg-type]
    assert describe_exception(crash.value).startswith("TypeError: unsupported operand")
    tell_crash(crash.value)
    death = run_child("raise SystemExit(1)", tmp_path)
    assert "ended with exit code 1 in backward of step 60: TypeError: unsupported operand" in death.sentence
    assert "at find_control_group (control_group.py:" in death.sentence
    assert death.evidence == "established"


def write_groups(folder: Path, lines: str, files: dict[str, str]) -> Path:
    (folder / "proc" / "7").mkdir(parents=True)
    (folder / "proc" / "7" / "cgroup").write_text(lines)
    for name, text in files.items():
        (folder / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "groups" / name).write_text(text)
    return folder


VERSIONS = {
    "1": (
        "3:freezer:/job\n2:cpu,cpuacct:/job\n1:memory:/job/inner\n",
        {
            "freezer/job/freezer.state": "FROZEN\n",
            "cpu/job/cpu.stat": "nr_periods 9\nnr_throttled 3\nthrottled_time 2500000000\n",
            "memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
        },
    ),
    "2": (
        "0::/job\n",
        {
            "job/cgroup.events": "populated 1\nfrozen 1\n",
            "job/cpu.stat": "usage_usec 9\nthrottled_usec 2500000\n",
            "job/memory.events": "low 0\noom 5\noom_kill 4\n",
        },
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_control_groups_of_both_versions_are_read(tmp_path: Path, version: str) -> None:
    folder = write_groups(tmp_path, *VERSIONS[version])
    group = find_control_group(7, folder / "proc", folder / "groups")
    assert group.is_frozen
    assert group.throttled_seconds == pytest.approx(2.5)
    assert group.memory_kills == 4
    nothing = find_control_group(8, folder / "proc", folder / "groups")
    assert (nothing.is_frozen, nothing.throttled_seconds, nothing.memory_kills) == (False, 0.0, None)


def test_short_memory_is_said(tmp_path: Path) -> None:
    pressure = tmp_path / "memory"
    pressure.write_text("some avg10=60.00 avg60=1.0 avg300=0 total=1\nfull avg10=41.50 avg60=1.0 avg300=0 total=1\n")
    assert describe_memory(pressure) == "memory is short: all programs waited for it 42 % of the time"
    assert describe_memory(tmp_path / "missing") == ""


@contextmanager
def control_group(controller: str) -> Iterator[Path]:
    """Makes a control group of version 1 for a test."""
    folder = ROOT / controller / f"lockstep-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("control groups cannot be made here")
    try:
        yield folder
    finally:
        folder.rmdir()


def test_the_kernel_is_named_when_it_kills_for_memory(tmp_path: Path) -> None:
    kills = MemoryKills()
    with control_group("memory") as folder:
        (folder / "memory.limit_in_bytes").write_text(str(64 << 20))
        program = f"""
import os, sys
open({str(folder / "cgroup.procs")!r}, "w").write(str(os.getpid()))
sys.stdin.readline()
b"x" * (1 << 30)
"""
        child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        while child.pid not in map(int, (folder / "cgroup.procs").read_text().split()):
            assert child.poll() is None
        kills.look([child.pid])
        child.communicate(b"\n")
        death = describe_death(ChildProcess("Worker 1", child, 1), kills, {1: BEAT})
    assert death.evidence == "established"
    assert (
        "was killed by SIGKILL in backward of step 60, by the kernel because memory ran out (established)."
        in death.sentence
    )


def test_a_frozen_control_group_is_recognized() -> None:
    with control_group("freezer") as folder:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        try:
            (folder / "cgroup.procs").write_text(str(child.pid))
            assert not read_state(child.pid).is_frozen
            (folder / "freezer.state").write_text("FROZEN")
            deadline = time.monotonic() + 10
            while not (state := read_state(child.pid)).is_frozen and time.monotonic() < deadline:
                time.sleep(0.01)
            (folder / "freezer.state").write_text("THAWED")
        finally:
            child.kill()
            child.wait()
    assert state.is_halted
    assert state.describe() == "its cgroup is frozen"
