"""Scoring a held-out set: which examples are scored, which worker scores which, and how far the workers are."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from torch import nn

from lockstep import heartbeat
from lockstep.team import Team

ROUND_SECONDS = 0.5
"""How often the workers agree during an evaluation whether to continue it."""


class EvaluationStopped(Exception):
    """A worker wanted to stop during an evaluation. All workers raise this together; what was scored is thrown away."""


def _never() -> bool:
    return False


def _ignore(done: int, total: int) -> None:
    pass


@dataclass
class ScoringProgress:
    """How far an evaluation is, on all workers of a team together. They meet every half a second, whatever they compute:
    that bounds how long a stop signal waits, and changes no result."""

    team: Team
    wants_stop: Callable[[], bool] = _never  # whether this worker wants to stop
    show: Callable[[int, int], None] = _ignore  # is told the examples that all workers have scored, and their number
    limit: int | None = None  # the most examples to score
    clock: Callable[[], float] = time.monotonic
    available: int = field(default=0, init=False)  # the examples of the set
    total: int = field(default=0, init=False)  # those that are scored
    _done: int = field(default=0, init=False)  # examples that this worker has scored
    _is_active: bool = field(default=False, init=False)
    _last_meeting: float = field(default=0.0, init=False)

    def begin(self, count: int) -> np.ndarray:
        """Begins to score a held-out set of `count` examples. Returns the indices of those to score, in rising order: all,
        or an even sample of `limit`, always the same one."""
        self.available, self.total = count, count if self.limit is None else min(self.limit, count)
        self._last_meeting, self._is_active = self.clock(), True
        self.show(0, self.total)
        return np.arange(self.total, dtype=np.int64) * count // max(1, self.total)

    def update(self, done: int) -> None:
        """Notes how many of its examples this worker has scored. Cheap: call it as often as possible. Raises
        EvaluationStopped on all workers of the team when one of them wants to stop."""
        self._done = done
        heartbeat.beat("evaluate")
        if self.clock() - self._last_meeting >= ROUND_SECONDS:
            self._meet(done, is_finished=False)

    @contextmanager
    def watch(self, module: nn.Module) -> Iterator[None]:
        """Lets the workers meet after every layer of a forward pass too: one pass of a large model takes seconds."""

        def meet_if_due(*_: object) -> None:
            if self._is_active:
                self.update(self._done)

        layers = [layer for layer in module.modules() if any(True for _ in layer.children())]
        hooks = [layer.register_forward_hook(meet_if_due) for layer in layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def finish(self, done: int) -> None:
        """Waits until all workers have scored their examples; any of them may still stop the evaluation."""
        self._is_active = False
        while not self._meet(done, is_finished=True):
            heartbeat.beat("evaluate")
        heartbeat.beat("score")

    def _meet(self, done: int, is_finished: bool) -> bool:
        """Returns whether all workers have finished."""
        stops, counts, finished = zip(*self.team.gather([self.wants_stop(), done, is_finished]), strict=True)
        if any(stops) and not all(finished):
            raise EvaluationStopped
        self._last_meeting = self.clock()
        self.show(sum(counts), self.total)
        return all(finished)


def assign_longest_first(work: Sequence[float], workers: int) -> list[list[int]]:
    """Returns which parts each worker takes: the part with the most work first, always to the worker with the least work
    so far."""
    parts: list[list[int]] = [[] for _ in range(workers)]
    loads = [0.0] * workers
    for number in sorted(range(len(work)), key=lambda number: -work[number]):
        worker = loads.index(min(loads))
        parts[worker].append(number)
        loads[worker] += work[number]
    return parts
