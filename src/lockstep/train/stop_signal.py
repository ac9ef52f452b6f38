"""Why a run stops before its end: a signal, or a time limit."""

import math
import signal
import time
from collections.abc import Callable
from types import FrameType

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


class StopWish:
    """Whether this worker wants all to stop: after a signal, near the end of the time, or when a save has failed."""

    def __init__(
        self, limit: TimeLimit, watches_time: bool, save_seconds: Callable[[], float], has_failed: Callable[[], bool]
    ) -> None:
        """One worker watches the time for all that stop together."""
        self.signal, self.limit = StopSignal(), limit
        self._watches_time, self._save_seconds, self._has_failed = watches_time, save_seconds, has_failed

    @property
    def is_there(self) -> bool:
        is_over = self._watches_time and self._is_time_over
        return self.signal.name is not None or self._has_failed() or is_over

    @property
    def _is_time_over(self) -> bool:
        return self.limit.is_set and self.limit.is_near(self._save_seconds())

    def explain(self, reason: str, is_independent: bool) -> str:
        """Returns what the journal calls the reason of a stop. An independent worker does not know why others stop."""
        if reason != "signal" or self.signal.name is not None:
            return reason
        return "max_hours" if self._is_time_over else "another worker stopped" if is_independent else reason
