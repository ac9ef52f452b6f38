"""How long a run still takes: its steps, its evaluations and its checkpoints."""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_STEP_RATIO = 10.0
"""A step counts as at most this many times the usual one, so that a suspended machine does not distort the ETA."""
LAST_PAUSES = 2
"""How many of the last evaluations and saves are averaged: they get faster or slower as the model learns."""


def format_duration(seconds: float) -> str:
    """Formats seconds as a clock: 3725 -> '1:02:05'."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


@dataclass
class Eta:
    """Estimates the remaining time of a run. What lies between two steps is measured: after a step that is evaluated it is
    an evaluation with its saves, after one that is only saved a checkpoint."""

    steps: int
    evaluate_every: int | None
    checkpoint_every: int
    clock: Callable[[], float] = time.monotonic
    step_seconds: float | None = None  # smoothed
    growth_seconds: float = 0.0  # how much longer than the evaluation of the last step later ones will take
    _reached: tuple[int, float] | None = None  # the last step, and when it ended
    _pauses: dict[str, deque[float]] = field(
        default_factory=lambda: {"evaluation": deque(maxlen=LAST_PAUSES), "save": deque(maxlen=LAST_PAUSES)}
    )

    def step(self, step: int, seconds: float) -> None:
        """Notes a step that has just ended and took so many seconds."""
        now = self.clock()
        if self._reached is not None:
            last_step, last_end = self._reached
            between = max(0.0, now - last_end - seconds)
            kind = self._find_pause(last_step, step)
            if kind is None:
                seconds += between
            else:
                self._pauses[kind].append(between + self.growth_seconds)
                self.growth_seconds = 0.0
        if self.step_seconds is not None:
            seconds = 0.95 * self.step_seconds + 0.05 * min(seconds, MAX_STEP_RATIO * self.step_seconds)
        self.step_seconds, self._reached = seconds, (step, now)

    def _find_pause(self, last_step: int, step: int) -> str | None:
        """What happened after `last_step` and before `step`: an evaluation, only a save, or nothing."""
        if self._count_multiples(self.evaluate_every, last_step, step):
            return "evaluation"
        return "save" if self._count_multiples(self.checkpoint_every, last_step, step) else None

    def _count_multiples(self, every: int | None, first: int, end: int) -> int:
        """Returns how many steps from `first` on, and before `end`, are multiples of `every`."""
        return 0 if every is None else max(0, (end - 1) // every - (max(first, 1) - 1) // every)

    def _count_pauses(self, reached: int) -> dict[str, int]:
        """Returns how many evaluations, and how many checkpoints beside them, are left from this step on."""
        both = None if self.evaluate_every is None else math.lcm(self.evaluate_every, self.checkpoint_every)
        evaluations = self._count_multiples(self.evaluate_every, reached, self.steps)
        saves = self._count_multiples(self.checkpoint_every, reached, self.steps)
        saves -= self._count_multiples(both, reached, self.steps)
        is_evaluated = self.evaluate_every is not None  # the last step is both evaluated and saved
        return {"evaluation": evaluations + is_evaluated, "save": saves + (not is_evaluated)}

    def describe(self) -> str:
        """Returns the remaining time, for example `1:02:05`, or `1:02:05 + 4 evaluations` before one was measured."""
        if self.step_seconds is None or self._reached is None:
            return "?"
        seconds, unknown = self.step_seconds * (self.steps - self._reached[0]), ""
        for kind, count in self._count_pauses(self._reached[0]).items():
            measured = self._pauses[kind]
            if measured:
                seconds += count * sum(measured) / len(measured)
            elif kind == "evaluation" and count:
                unknown = f" + {count:,} evaluation{'s' * (count > 1)}"
        return format_duration(seconds) + unknown
