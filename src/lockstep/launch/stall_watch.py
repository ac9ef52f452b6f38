"""Watches the heartbeats of local workers, and says which one stands still and what the system knows about it.

Of several workers that do not beat, the one that is not where the others wait is to blame. A worker that is stopped, or
whose process is gone, is to blame in any case.
"""

import math
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.heartbeat import STEP_PHASES, Heartbeat, read_heartbeat
from lockstep.launch.process_state import ProcessState, read_state

LATE_SECONDS, LATE_STEPS = 10.0, 4.0
"""A step is late after the larger of LATE_SECONDS and LATE_STEPS times the slowest of the last hundred steps."""
FIRST_STEP_SECONDS = 120.0
EVALUATION_SECONDS = 60.0
SAVE_SECONDS = 180.0
CHECK_SECONDS = 1.0
CLEAR_SECONDS = 0.1
PHASE_NAMES = {
    "merge": "the exchange",
    "start": "its start",
    "evaluate": "an evaluation",
    "score": "an evaluation",
    "save": "a save",
}


@dataclass(frozen=True)
class Stall:
    """Who stands still. `evidence` is established, supported or unknown."""

    rank: int | None  # None: it is not known who is to blame
    since: float  # of the machine's monotonic clock
    evidence: str
    sentence: str


@dataclass(frozen=True)
class WatchedWorker:
    rank: int
    pid: int


class StallWatch:
    """Looks at the workers of one launch once a second."""

    def __init__(self, folder: Path, stall_seconds: float, start_seconds: float) -> None:
        self._folder, self._stall_seconds, self._start_seconds = folder, stall_seconds, start_seconds
        self._last_check = self._begin = time.monotonic()
        self._before: dict[int, ProcessState] = {}  # as the last check saw them
        self.stall: Stall | None = None  # while somebody stands still
        self._limit = 0.0  # seconds after which the worker of the stall is ended

    def check(self, workers: Sequence[WatchedWorker]) -> Stall | None:
        """Returns a stall that is new since the last check. `stall` has it until the worker continues."""
        now = time.monotonic()
        if now - self._last_check < CHECK_SECONDS:
            return None
        self._last_check = now
        beats = {worker.rank: read_heartbeat(self._folder, worker.rank) for worker in workers}
        alive = {rank: beat for rank, beat in beats.items() if beat is not None}
        states = {worker.rank: read_state(worker.pid) for worker in workers}
        limits = {rank: self.find_limit(beat, states[rank].is_halted) for rank, beat in alive.items()}
        late = {rank: beat for rank, beat in alive.items() if now - beat.time > limits[rank]}
        if any(beat.phase not in STEP_PHASES and rank not in late for rank, beat in alive.items()):
            late = {
                rank: beat for rank, beat in late.items() if states[rank].is_halted
            }  # others wait for its evaluation
        before, self._before = self._before, states
        if not late:
            self.stall = None
            return None
        if self.stall is not None and (self.stall.rank is None or self.stall.rank in late):
            return None
        self._limit = min(self._find_end(beat, states[rank].is_halted) for rank, beat in late.items())
        self.stall = describe_stall(alive, late, states, before, {worker.rank: worker.pid for worker in workers}, now)
        return self.stall

    def find_limit(self, beat: Heartbeat, is_halted: bool = False) -> float:
        """Returns after how many seconds without a beat a worker is late. One that is stopped is late soon in any phase."""
        if is_halted:
            return min(LATE_SECONDS, self._stall_seconds)
        if beat.phase in ("start", "score"):
            return self._start_seconds
        if beat.phase == "evaluate":
            return max(EVALUATION_SECONDS, LATE_STEPS * beat.slowest)
        if beat.phase == "save":
            return SAVE_SECONDS
        if not beat.slowest:
            return FIRST_STEP_SECONDS
        return max(min(LATE_SECONDS, self._stall_seconds), LATE_STEPS * beat.slowest)

    def _find_end(self, beat: Heartbeat, is_halted: bool) -> float:
        """Returns after how many seconds without a beat a worker is ended. Where it may be busy for any time, it never is,
        unless the system says that it cannot continue."""
        if is_halted:
            return self._stall_seconds
        if beat.phase in STEP_PHASES:
            return max(self._stall_seconds, self.find_limit(beat))
        return self._start_seconds if beat.phase == "evaluate" else math.inf

    def find_furthest_step(self, workers: int) -> int:
        """Returns the furthest step that a worker has begun; 0 if none has."""
        beats = (read_heartbeat(self._folder, rank) for rank in range(workers))
        return max((beat.step for beat in beats if beat is not None), default=0)

    def is_over(self) -> bool:
        """Has somebody stood still for so long that the worker must be ended?"""
        return self.stall is not None and time.monotonic() - self.stall.since > self._limit


def describe_stall(
    beats: dict[int, Heartbeat],
    late: dict[int, Heartbeat],
    states: dict[int, ProcessState],
    before: dict[int, ProcessState],
    pids: dict[int, int],
    now: float,
) -> Stall:
    """Decides who is to blame, and says it in one sentence."""
    halted = [rank for rank in late if states[rank].is_halted]
    behind = _find_behind(beats, late)
    rank = halted[0] if halted else behind
    if rank is None:
        seconds = max(now - beat.time for beat in late.values())
        names = _list_workers(sorted(late))
        phases = {PHASE_NAMES.get(beat.phase, beat.phase) for beat in late.values()}
        where = f"in {' and '.join(sorted(phases))} of step {max(beat.step for beat in late.values()):,}"
        sentence = (
            f"{names} {'has' if len(late) == 1 else 'have'} not moved for {seconds:.0f} s {where}, all at the same place: "
            "a lost connection, or a worker that skipped an exchange (cause unknown)."
        )
        return Stall(None, now - seconds, "unknown", sentence)
    beat, state = beats[rank], states[rank]
    seconds = now - beat.time
    evidence = "established" if halted else "supported"
    phase = PHASE_NAMES.get(beat.phase, beat.phase)
    where = f"in {phase} of step {beat.step:,}" if beat.phase in STEP_PHASES else f"in {phase}"
    line = _find_line(pids[rank])
    at = f", at {line}" if line else ""
    victims = [other for other in sorted(late) if other != rank]
    waiting = f" {_list_workers(victims)} {'waits' if len(victims) == 1 else 'wait'} for it." if victims else ""
    sentence = (
        f"Worker {rank} (process {pids[rank]}) has stood still for {seconds:.0f} s {where}: "
        f"{state.describe(before.get(rank))}{at} ({evidence}).{waiting}"
    )
    return Stall(rank, beat.time, evidence, sentence)


def _find_behind(beats: dict[int, Heartbeat], late: dict[int, Heartbeat]) -> int | None:
    """Returns the late worker that is behind all others; None if there is no single one. In an evaluation workers do not
    beat at the same places: there the one whose last beat is the oldest is behind."""
    if len(beats) == 1:
        return next(iter(late), None)
    beats_alike = all(beat.phase in STEP_PHASES for beat in beats.values())
    places = [(beat.step, float(beat.count) if beats_alike else beat.time, rank) for rank, beat in beats.items()]
    (step, place, rank), (next_step, next_place, _), *_ = sorted(places)
    is_clear = step < next_step or next_place - place > (0.0 if beats_alike else CLEAR_SECONDS)
    return rank if is_clear and rank in late else None


def _list_workers(ranks: list[int]) -> str:
    names = [str(rank) for rank in ranks]
    return f"Worker {names[0]}" if len(names) == 1 else f"Workers {', '.join(names[:-1])} and {names[-1]}"


def _find_line(pid: int) -> str | None:
    """Returns the innermost Python line of a process, through py-spy where it is installed and may look; without the help
    of the process."""
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if program is None:
        return None
    command = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=5.0, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_stack(result.stdout)


def parse_stack(text: str) -> str | None:
    """Returns the innermost line of the main thread in the output of py-spy: `forward (transformer.py:120)`."""
    lines = iter(text.splitlines())
    for line in lines:
        if "MainThread" in line:
            innermost = next(lines, "").strip()
            name, _, place = innermost.partition(" (")
            return f"{name} ({Path(place.rstrip(')')).name})" if place else None
    return None
