"""Why a run stops before its end: a signal, or a time limit."""

import math
import signal
import time
from dataclasses import dataclass
from types import FrameType

from lockstep.train.checkpointer import Checkpointer

CLOSING_SECONDS = 5.0
"""What the end of a launch takes beside the last save: its report, and the ends of processes."""
STEPS_AHEAD = 2
"""Workers agree on a stop after a step, and begin no other one that may be too long."""


class StopSignal:
    """Notes SIGTERM, SIGINT and SIGHUP (unless nohup ignores it), so that all workers stop at the next step boundary."""

    def __init__(self) -> None:
        self.name: str | None = None
        handled = [n for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._note) for number in handled}

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name


class TimeLimit:
    """Says when a launch must save and stop to end in time."""

    def __init__(self, hours: float | None, launch_begin: float) -> None:
        self.is_set = hours is not None
        self._end = launch_begin + 3600 * (math.inf if hours is None else hours)
        self._step_seconds = 0.0  # of a slow one

    def add_step(self, seconds: float) -> None:
        self._step_seconds = max(seconds, 0.99 * self._step_seconds)

    def is_near(self, save_seconds: float) -> bool:
        """Whether the time that is left is needed to stop. `save_seconds`: what the last save will take."""
        return time.time() + STEPS_AHEAD * self._step_seconds + save_seconds + CLOSING_SECONDS >= self._end


@dataclass
class StopWish:
    """Why this worker wants to stop, if it does: a signal, the time limit, or a save that failed."""

    signal: StopSignal
    limit: TimeLimit
    checkpointer: Checkpointer
    keeps_time: bool  # one worker decides when the time is over; elastic ones each for themselves

    @property
    def is_time_over(self) -> bool:
        return self.limit.is_set and self.limit.is_near(self.checkpointer.expected_seconds)

    def __bool__(self) -> bool:
        is_over = self.keeps_time and self.is_time_over
        return self.signal.name is not None or self.checkpointer.has_failed or is_over

    def explain(self, reason: str, hears_of_others: bool) -> str:
        """Returns the `reason` that the journal has. `hears_of_others`: it may be another worker's."""
        if reason != "signal" or self.signal.name is not None:
            return reason
        return "max_hours" if self.is_time_over else "another worker stopped" if hears_of_others else reason
