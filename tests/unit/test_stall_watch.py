"""Who is named when workers stand still: made-up heartbeats, and real processes in real states."""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.heartbeat import (
    BatchShape,
    Heartbeat,
    HeartbeatWriter,
    WorkDone,
    read_batch,
    read_heartbeat,
    read_work,
)
from lockstep.launch.describe_stall import Stall, describe_stall
from lockstep.launch.process_state import ProcessState, read_state
from lockstep.launch.python_stack import PythonStack, parse_stack, read_stack
from lockstep.launch.stall_watch import StallWatch, View, WatchedWorker

NOW = 1000.0
RUNS = ProcessState("S", 1.0)


def beat(step: int, count: int, phase: str, ago: float = 20.0, slowest: float = 0.1) -> Heartbeat:
    return Heartbeat(step, count, phase, NOW - ago, slowest)


def describe(
    beats: list[Heartbeat], states: dict[int, ProcessState] | None = None, before: ProcessState | None = None
) -> tuple[int | None, str, str]:
    everyone = dict(enumerate(beats))
    late = {rank: one for rank, one in everyone.items() if NOW - one.time > 10}
    seen = dict.fromkeys(everyone, RUNS) | (states or {})
    looks_before = dict.fromkeys(everyone, before or RUNS)
    stall = describe_stall(everyone, late, seen, looks_before, dict.fromkeys(everyone, 1 << 30), NOW)
    return stall.rank, stall.evidence, stall.sentence


@contextmanager
def process(program: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", program])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def test_the_worker_behind_the_others_is_to_blame() -> None:
    rank, evidence, sentence = describe([beat(7, 5, "merge"), beat(7, 3, "backward"), beat(7, 5, "merge")])
    assert (rank, evidence) == (1, "supported")
    assert re.search(r"still for 20 s, since \d\d:\d\d:\d\d, in backward of step 7: it sleeps or waits", sentence)
    assert "Workers 0 and 2 wait for it." in sentence


def test_a_stopped_worker_is_to_blame_wherever_it_is() -> None:
    rank, evidence, sentence = describe([beat(7, 5, "merge"), beat(7, 5, "merge")], {1: ProcessState("T", 1.0)})
    assert (rank, evidence) == (1, "established")
    assert "it is stopped (SIGSTOP) (established). Worker 0 waits for it." in sentence


def test_a_worker_that_computes_without_progress_is_told_from_one_that_waits() -> None:
    _, _, sentence = describe([beat(7, 5, "merge"), beat(7, 2, "forward")], {1: ProcessState("R", 2.0)})
    assert "it computes without progress" in sentence


def judge(folder: Path, beats: list[Heartbeat]) -> Stall | None:
    everyone = dict(enumerate(beats))
    view = View(everyone, dict.fromkeys(everyone, RUNS), dict.fromkeys(everyone, 1 << 30))
    return StallWatch(folder, stall_seconds=60, start_seconds=600).judge(view, NOW)


def test_who_waits_is_not_judged_before_the_worker_that_keeps_it_waiting(tmp_path: Path) -> None:
    waits, slow = beat(7, 5, "merge", ago=12.0), beat(7, 3, "backward", ago=12.5, slowest=4.0)
    assert judge(tmp_path, [waits, slow]) is None, "four of its own slowest steps are not over"
    stall = judge(tmp_path, [waits, replace(slow, time=NOW - 17.0)])
    assert stall is not None
    assert stall.rank == 1
    stall = judge(tmp_path, [waits, beat(7, 5, "merge", ago=9.0)])
    assert stall is not None
    assert stall.rank is None


def test_nobody_is_blamed_when_all_wait_at_the_same_place() -> None:
    rank, evidence, sentence = describe([beat(7, 5, "merge"), beat(7, 5, "merge")])
    assert (rank, evidence) == (None, "unknown")
    assert sentence.startswith("Workers 0 and 1 have not moved for 20 s, since ")
    assert "in the exchange of step 7, all at the same place" in sentence


def test_a_disk_is_to_blame_also_where_all_wait_for_it_at_the_same_place() -> None:
    beats, disk = [beat(7, 5, "update"), beat(7, 5, "update")], ProcessState("D", 1.0)
    rank, evidence, sentence = describe(beats, {0: disk, 1: disk}, before=disk)
    assert (rank, evidence) == (None, "supported")
    assert sentence.endswith("in update of step 7: they wait for a disk or a file system (supported).")
    assert describe(beats, {1: disk}, before=disk)[0] == 1
    assert describe(beats, {0: disk, 1: disk})[1] == "unknown", "a single look may be chance"


def test_in_an_evaluation_the_oldest_heartbeat_decides() -> None:
    rank, _, sentence = describe([beat(8, 90, "evaluate", ago=70.0), beat(8, 40, "evaluate", ago=70.5)])
    assert rank == 1
    assert "in an evaluation" in sentence


@pytest.mark.parametrize(
    ("phase", "slowest", "limit"),
    [
        ("forward", 0.1, 10.0),
        ("merge", 5.0, 20.0),
        ("forward", 0.0, 120.0),
        ("start", 0.0, 600.0),
        ("evaluate", 0.1, 60.0),
        ("evaluate", 50.0, 200.0),
        ("save", 0.1, 180.0),
        ("score", 0.1, 600.0),
    ],
)
def test_every_phase_has_its_limit(tmp_path: Path, phase: str, slowest: float, limit: float) -> None:
    assert StallWatch(tmp_path, 120.0, 600.0).find_limit(beat(1, 1, phase, slowest=slowest)) == limit


def test_a_heartbeat_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_heartbeat(tmp_path, 3) is None
    writer = HeartbeatWriter(tmp_path / "heartbeat-3")
    writer.begin_step(41)
    time.sleep(0.02)
    writer.begin_step(42)
    writer.beat("forward")
    last = read_heartbeat(tmp_path, 3)
    assert last is not None
    assert (last.step, last.count, last.phase) == (42, 2, "forward")
    assert 0.02 <= last.slowest < 1
    writer.beat("evaluate")
    time.sleep(0.2)
    writer.begin_step(43)
    last = read_heartbeat(tmp_path, 3)
    assert last is not None
    assert last.slowest < 0.2, "an evaluation is no slow step"


def test_the_system_says_what_a_process_does() -> None:
    with process("while True: pass") as busy, process("import time; time.sleep(60)") as idle:
        time.sleep(0.3)
        before = read_state(busy.pid), read_state(idle.pid)
        time.sleep(0.8)
        assert "computes without progress" in read_state(busy.pid).describe(before[0])
        assert read_state(idle.pid).describe(before[1]).startswith("it sleeps or waits")
        os.kill(idle.pid, signal.SIGSTOP)
        time.sleep(0.1)
        assert read_state(idle.pid).is_halted
        assert "stopped" in read_state(idle.pid).describe()
    assert read_state(idle.pid).describe() == "its process is gone"


def test_a_stall_is_reported_once_and_ends_when_the_worker_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.launch.stall_watch.CHECK_SECONDS", 0.0)
    writers = [HeartbeatWriter(tmp_path / f"heartbeat-{rank}") for rank in range(2)]
    watch, workers = StallWatch(tmp_path, 0.3, 600.0), [WatchedWorker(0, os.getpid()), WatchedWorker(1, os.getpid())]
    for step in (1, 2, 3):
        for writer in writers:
            writer.begin_step(step)
    writers[0].beat("forward")
    assert watch.check(workers) is None
    time.sleep(0.35)
    stall = watch.check(workers)
    assert stall is not None
    assert stall.rank == 1
    assert watch.check(workers) is None
    assert watch.is_over()
    for writer in writers:
        writer.beat("backward")
    assert watch.check(workers) is None
    assert watch.stall is None
    assert watch.find_furthest_step(workers=2) == 3


def make_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *phases: str) -> tuple[StallWatch, list[WatchedWorker]]:
    """Workers that are all in step 3, each in one of these phases, and have not beaten for a while."""
    monkeypatch.setattr("lockstep.launch.stall_watch.CHECK_SECONDS", 0.0)
    for rank, phase in enumerate(phases):
        writer = HeartbeatWriter(tmp_path / f"heartbeat-{rank}")
        for step in (1, 2, 3):
            writer.begin_step(step)
        writer.beat(phase)
    time.sleep(0.25)
    return StallWatch(tmp_path, 0.2, 600.0), [WatchedWorker(rank, os.getpid()) for rank in range(len(phases))]


@pytest.mark.parametrize("phase", ["evaluate", "score", "save"])
def test_nobody_is_late_who_waits_for_an_evaluation_or_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    watch, workers = make_watch(tmp_path, monkeypatch, phase, "merge")
    assert watch.check(workers) is None
    assert not watch.is_over()


def test_a_long_save_is_named_but_never_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.launch.stall_watch.SAVE_SECONDS", 0.1)
    watch, workers = make_watch(tmp_path, monkeypatch, "save")
    stall = watch.check(workers)
    assert stall is not None
    assert "in a save" in stall.sentence
    assert not watch.is_over()


def test_a_worker_that_is_late_in_a_step_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, workers = make_watch(tmp_path, monkeypatch, "forward")
    assert watch.check(workers) is not None
    assert watch.is_over()


def test_a_worker_that_is_a_step_ahead_of_one_that_waits_skipped_an_exchange() -> None:
    waits = ProcessState("S", 1.0, waits="for another thread")
    rank, evidence, sentence = describe(
        [beat(7, 6, "merge"), beat(8, 4, "merge"), beat(7, 6, "merge")], {0: waits, 2: waits}
    )
    assert (rank, evidence) == (1, "supported")
    assert "it is ahead of the others, so it skipped an exchange (supported). Workers 0 and 2 wait for it." in sentence


@pytest.mark.parametrize("state", [ProcessState("S", 1.0, waits="for a timer"), ProcessState("R", 1.0)])
def test_a_worker_behind_that_does_not_wait_for_others_is_to_blame(state: ProcessState) -> None:
    rank, _, sentence = describe([beat(7, 6, "merge"), beat(8, 4, "merge")], {0: state})
    assert rank == 0
    assert "skipped" not in sentence


def test_the_batch_and_the_host_are_named_in_less_than_300_characters() -> None:
    beats = {0: beat(70, 5, "merge"), 1: beat(70, 3, "backward")}
    states = {0: RUNS, 1: ProcessState("S", 1.0, throttled_seconds=3.0, waits="for another thread")}
    shapes = {1: BatchShape(412, 8190, 71, 68)}
    pids = dict.fromkeys(beats, 1 << 30)
    before = dict.fromkeys(beats, RUNS)
    stall = describe_stall(beats, beats, states, before, pids, NOW, host="node-17", batches=shapes)
    assert stall.sentence.startswith("Worker 1 (node-17, process 1073741824) has stood still for 20 s, since ")
    assert "in backward of step 70 (412 sentences, longest 71/68, 8,190 words): it sleeps or waits" in stall.sentence
    assert "for another thread, and its cgroup throttles it (supported). Worker 0 waits for it." in stall.sentence
    assert len(stall.sentence) < 300
    assert (stall.rank, stall.phase, stall.step, stall.victims) == (1, "backward", 70, (0,))


def test_a_heartbeat_file_has_the_batch_and_the_work(tmp_path: Path) -> None:
    writer = HeartbeatWriter(tmp_path / "heartbeat-0")
    assert read_batch(tmp_path, 0) is None
    writer.note_batch(12, 140, 15, 17)
    assert read_batch(tmp_path, 0) == BatchShape(12, 140, 15, 17)
    assert BatchShape(12, 12, 0, 0).describe() == "12 examples"
    writer.note_work(100, 0.5, 0.25)
    writer.note_work(100, 1.5, 0.25)
    assert read_work(tmp_path, 0) == WorkDone(2, 200, 2.0, 0.5)
    assert read_work(tmp_path, 1) is None


def test_a_debugger_is_named() -> None:
    """This process traces another one, as a debugger does."""
    attach, detach = 16, 17
    libc = ctypes.CDLL(None, use_errno=True)
    with process("import time; time.sleep(60)") as child:
        if libc.ptrace(attach, child.pid, 0, 0):
            pytest.skip("ptrace is forbidden here")
        os.waitpid(child.pid, 0)
        state = read_state(child.pid)
        libc.ptrace(detach, child.pid, 0, 0)
    assert state.is_halted
    assert re.fullmatch(rf"it is stopped by a debugger \(.+, process {os.getpid()}\)", state.describe())


@pytest.mark.parametrize(
    ("program", "holder"),
    [
        ("import ctypes\ndef work(): ctypes.PyDLL(None).sleep(60)\nwork()", "work (<string>:2)"),
        ("import time\ndef work(): time.sleep(60)\nwork()", ""),
    ],
)
def test_a_worker_that_never_releases_the_interpreter_is_recognized(program: str, holder: str) -> None:
    with process(program) as child:
        stack = wait_for_stack(child.pid)
        if stack.is_forbidden:
            pytest.skip("ptrace is forbidden here")
    assert (stack.line, stack.holder, stack.holder_name) == ("work (<string>:2)", holder, "")


def wait_for_stack(pid: int) -> PythonStack:
    deadline = time.monotonic() + 10
    while not (stack := read_stack(pid)).line.startswith("work") and not stack.is_forbidden:
        assert time.monotonic() < deadline
    return stack


def test_another_thread_that_holds_the_interpreter_is_named() -> None:
    reading = {"name": "Reader.read", "short_filename": "a.py", "line": 8}
    waiting = {"name": "wait", "short_filename": "b.py", "line": 3}
    threads = [
        {"pid": 5, "os_thread_id": 6, "thread_name": "input", "owns_gil": True, "frames": [reading]},
        {"pid": 5, "os_thread_id": 5, "thread_name": "MainThread", "owns_gil": False, "frames": [waiting]},
    ]
    assert parse_stack(json.dumps(threads)) == PythonStack("wait (b.py:3)", "read (a.py:8)", "input")
    assert parse_stack("Error: no Python") == PythonStack()
