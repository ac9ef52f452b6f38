"""When a checkpoint is due. `train.checkpoint_every: auto` chooses the interval that loses the least time.

With C seconds lost to a save, R to a restart and a failure every M seconds, saving every T seconds loses C/T of the time to
saves and, on average, T/2 + R per failure. The sum is least at about sqrt(2 C (M + R)) - C (Young 1974, Daly 2006).
"""

import math
import os
import time
from collections import deque
from statistics import median

import psutil

from lockstep.run import environment_variables
from lockstep.train.train_settings import TrainSettings

FIRST_STEPS = 100
"""The interval before a save was measured."""
BACKGROUND_COST = 0.1
"""What a second of writing in the background costs, in seconds of training: the niceness of the writer process allows it
about a tenth of a busy core."""
BACKGROUND_SHARE = 0.5
"""The writer process writes at most this share of the time, so that no save has to wait for the one before."""
REMEMBERED_STEPS, REMEMBERED_SAVES = 100, 5


def choose_seconds(save: float, restart: float, failure: float, background: float = 0.0) -> float:
    """Returns the seconds between two saves that lose the least time."""
    best = math.sqrt(2 * save * (failure + restart)) - save
    return max(best, save, background / BACKGROUND_SHARE)


def find_launch_begin() -> float:
    """Returns when this launch began, in seconds since 1970: its launcher, or this process if it has none of ours."""
    try:
        return psutil.Process(environment_variables.launcher_pid() or os.getpid()).create_time()
    except psutil.Error:
        return time.time()


class SaveSchedule:
    """The steps after which a checkpoint is due, the same for all workers that save together."""

    def __init__(self, settings: TrainSettings) -> None:
        self._failure_seconds = 3600 * settings.failure_hours
        self.every = None if settings.checkpoint_every == "auto" else settings.checkpoint_every
        self._next = 0
        self._steps: deque[float] = deque(maxlen=REMEMBERED_STEPS)  # seconds of steps
        self._stalls: deque[float] = deque(maxlen=REMEMBERED_SAVES)
        self._backgrounds: deque[float] = deque(maxlen=REMEMBERED_SAVES)
        self._restart_seconds: float | None = None

    @property
    def is_automatic(self) -> bool:
        return self.every is None

    def is_due(self, step: int) -> bool:
        return step >= self._next if self.every is None else step % self.every == 0

    def continue_from(self, step: int, interval: int | None) -> None:
        """Notes where the run stands, and the interval that was chosen last."""
        self._next = step + (interval or FIRST_STEPS)

    def add_step(self, seconds: float) -> None:
        if self._restart_seconds is None:  # a restart begins like this launch
            self._restart_seconds = max(0.0, time.time() - seconds - find_launch_begin())
        self._steps.append(seconds)

    def add_save(self, stall: float, background: float) -> None:
        self._stalls.append(stall)
        self._backgrounds.append(background)

    def choose(self) -> dict[str, float] | None:
        """Returns the interval in steps (`every`) with the figures that it was chosen from; None before a save was
        measured."""
        if not (self._stalls and self._steps):
            return None
        stall, background, step = median(self._stalls), median(self._backgrounds), median(self._steps)
        restart = self._restart_seconds or 0.0
        cost = stall + BACKGROUND_COST * background
        seconds = choose_seconds(cost, restart, self._failure_seconds, background)
        return {
            "every": max(1, round(seconds / step)),
            "step_seconds": step,
            "save_seconds": cost,
            "restart_seconds": restart,
            "failure_hours": self._failure_seconds / 3600,
        }
