"""Watches the heartbeats of local workers, and decides when one is late and when it must be ended."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.heartbeat import STEP_PHASES, Heartbeat, read_batch, read_heartbeat
from lockstep.launch.describe_stall import Stall, describe_stall
from lockstep.launch.process_state import ProcessState, read_state

LATE_SECONDS, LATE_STEPS = 10.0, 4.0
"""A step is late after the larger of LATE_SECONDS and LATE_STEPS times the slowest of the last hundred steps."""
FIRST_STEP_SECONDS = 120.0
EVALUATION_SECONDS = 60.0
SAVE_SECONDS = 180.0
CHECK_SECONDS = 1.0


@dataclass(frozen=True)
class WatchedWorker:
    rank: int
    pid: int


@dataclass(frozen=True)
class View:
    """What is known of workers at one moment, by rank."""

    beats: dict[int, Heartbeat] = field(default_factory=dict)
    states: dict[int, ProcessState] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)


class StallWatch:
    """Looks at the workers of one launch once a second."""

    def __init__(self, folder: Path, stall_seconds: float, start_seconds: float) -> None:
        self._folder, self._stall_seconds, self._start_seconds = folder, stall_seconds, start_seconds
        self._last_check = time.monotonic()
        self.view = View()  # of the last check
        self.stall: Stall | None = None  # while somebody stands still
        self._limit = 0.0  # seconds after which the worker of the stall is ended

    def check(self, workers: Sequence[WatchedWorker]) -> Stall | None:
        """Returns a stall that is new since the last check. `stall` has it until the worker continues."""
        now = time.monotonic()
        if now - self._last_check < CHECK_SECONDS:
            return None
        self._last_check = now
        return self.judge(self.look(workers), now)

    def look(self, workers: Sequence[WatchedWorker]) -> View:
        """Returns what can be seen of the workers on this host."""
        beats = {worker.rank: read_heartbeat(self._folder, worker.rank) for worker in workers}
        return View(
            {rank: beat for rank, beat in beats.items() if beat is not None},
            {worker.rank: read_state(worker.pid) for worker in workers},
            {worker.rank: worker.pid for worker in workers},
        )

    def judge(self, view: View, now: float) -> Stall | None:
        """Decides whether somebody stands still, and who. Returns a stall that is new."""
        before, self.view = self.view, view
        late = self._find_late(view, now)
        if not late:
            self.stall = None
            return None
        if self.stall is not None and (self.stall.rank is None or self.stall.rank in late):
            return None
        self._limit = min(self._find_end(beat, view.states[rank].is_halted) for rank, beat in late.items())
        self.stall = self.describe(view, late, before.states, now)
        if self.stall.is_moving:
            self._limit = math.inf
        return self.stall

    def describe(self, view: View, late: dict[int, Heartbeat], before: dict[int, ProcessState], now: float) -> Stall:
        """Returns who is to blame, with the sentence about it."""
        batches = {rank: batch for rank in view.pids if (batch := read_batch(self._folder, rank)) is not None}
        return describe_stall(view.beats, late, view.states, before, view.pids, now, batches=batches)

    def _find_late(self, view: View, now: float) -> dict[int, Heartbeat]:
        limits = {rank: self.find_limit(beat, view.states[rank].is_halted) for rank, beat in view.beats.items()}
        late = {rank: beat for rank, beat in view.beats.items() if now - beat.time > limits[rank]}
        if any(beat.phase not in STEP_PHASES and rank not in late for rank, beat in view.beats.items()):
            # The others wait for its evaluation or save.
            late = {rank: beat for rank, beat in late.items() if view.states[rank].is_halted}
        return {} if _wait_for_another(view, late) else late

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


def _wait_for_another(view: View, late: dict[int, Heartbeat]) -> bool:
    """Do all that are late wait in an exchange for a worker that is behind them in its step and not late itself? Limits
    differ from worker to worker, and the one that keeps the others waiting is judged by its own."""
    if not late or any(beat.phase != "merge" or view.states[rank].is_halted for rank, beat in late.items()):
        return False
    first = min((beat.step, beat.count) for beat in late.values())
    others = (beat for rank, beat in view.beats.items() if rank not in late)
    return any(beat.phase in STEP_PHASES and (beat.step, beat.count) < first for beat in others)
