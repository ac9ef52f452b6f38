"""Decides what follows when a worker of a local launch has died: all start again, or fewer of them, or none."""

import time

from lockstep.errors import LockstepError
from lockstep.launch.supervisor import RESUME


class WorkerDied(LockstepError):
    """A worker died without saying why, or stood still: another launch may succeed."""

    def __init__(self, message: str, remedy: str = "", code: int = 1, rank: int | None = None) -> None:
        super().__init__(message, remedy, code)
        self.rank = rank  # of the worker that is to blame, where that is known
        self.place: int | None = None  # its LOCAL_RANK


class Deaths:
    """Counts the deaths of a launch. With an elastic range a worker whose deaths bring no progress, or for which no restart
    is left, loses its place for a while: the others continue without it."""

    MOST_IN_VAIN = 3
    LEAST_IN_VAIN_TO_SHRINK = 2

    def __init__(self, most_restarts: int, workers: int, least_workers: int) -> None:
        self.restarts = 0  # in all
        self.furthest_step = 0
        self.places = list(range(workers))  # of the next workers: LOCAL_RANK of each
        self.is_return_due = False  # workers were stopped so that all can start again
        self._workers, self._least_workers = workers, least_workers
        self._most_restarts, self._left = most_restarts, most_restarts
        self._furthest_before, self._in_vain = -1, 0
        self._last: tuple[float, str] | None = None

    @property
    def is_reduced(self) -> bool:
        """Do fewer workers train than could?"""
        return len(self.places) < self._workers

    @property
    def environment(self) -> dict[str, str]:
        """What the next workers are told."""
        if self._last is None:
            return {"LOCKSTEP_RESTARTS": str(self.restarts)} if self.restarts else {}
        moment, sentence = self._last
        return {"LOCKSTEP_RESTARTS": str(self.restarts), "LOCKSTEP_DEATH": f"{moment:.3f} {sentence}"}

    def add(self, error: WorkerDied) -> str:
        """Returns a sentence about the restart, or raises if there is none."""
        is_further = self.furthest_step > self._furthest_before
        self._in_vain = 1 if is_further else self._in_vain + 1
        self._furthest_before = max(self._furthest_before, self.furthest_step)
        if len(self.places) > self._least_workers and (
            self._left <= 0 or self._in_vain >= self.LEAST_IN_VAIN_TO_SHRINK
        ):
            return self._continue_with_fewer(error)
        if self._in_vain >= self.MOST_IN_VAIN and self._most_restarts:
            step = f"{max(self.furthest_step, 1):,}"
            remedy = f"`lockstep data show RUN --step {step.replace(',', '')}` prints its sentences. {RESUME}"
            raise LockstepError(f"{error.message} Workers died {self._in_vain} times at step {step}.", remedy)
        if self._left <= 0:
            raise error
        self._left -= 1
        self._note(error)
        return (
            f"{error.message} All start again from the last checkpoint "
            f"(restart {self._most_restarts - self._left} of {self._most_restarts})."
        )

    def bring_back(self) -> str:
        """Gives all workers their places again."""
        self.places, self._in_vain = list(range(self._workers)), 0
        self.restarts, self._last = self.restarts + 1, None
        return f"All {self._workers} workers train again, from the step that was reached."

    def _continue_with_fewer(self, error: WorkerDied) -> str:
        lost = error.place if error.place in self.places else self.places[-1]
        self.places.remove(lost)
        self._left, self._in_vain = self._most_restarts, 0
        self._note(error)
        count = len(self.places)
        rest = f"{count} workers continue" if count > 1 else "1 worker continues"
        return f"{error.message} {rest} without it from the last checkpoint."

    def _note(self, error: WorkerDied) -> None:
        self.restarts += 1
        self._last = time.time(), error.message
