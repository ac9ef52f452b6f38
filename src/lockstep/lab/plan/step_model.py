"""How long a step takes, for arrays of worker counts: what is computed, what travels meanwhile, and what all wait for.

`computing` is forward, backward and update; `exposed` is communication that nothing hides; `waiting` is for the slowest.
"""

from dataclasses import dataclass

import numpy as np

from lockstep.explain.reading.steps import Column
from lockstep.lab.plan.costs import Wiring, expected_maximum
from lockstep.lab.plan.exchanges import EXCHANGES, Parts
from lockstep.lab.plan.job import Choice, PlannedJob


@dataclass(frozen=True)
class Forecast:
    """Columns over the worker counts, in seconds of a step unless said."""

    workers: Column
    step: Column
    computing: Column
    exposed: Column
    overlapped: Column
    waiting: Column
    bytes_sent: Column  # by one worker
    words: Column  # target words of a step, all workers
    low: Column
    high: Column

    @property
    def words_per_second(self) -> Column:
        return self.words / self.step


def forecast(
    job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, errors: tuple[float, float, float]
) -> Forecast:
    """`errors` are the shares by which computing, the link and the model may be off."""
    workers = np.asarray(workers, np.float64)
    forward, backward = job.profile.computing(job.share(workers))
    slow, point, count = job.slowdown(workers), job.profile.points[-1], choice.accumulate
    before = count * forward + (count - 1) * backward
    doing = Parts(slow * before, slow * backward, slow * point.update, slow * point.other)
    wait = job.profile.spread * expected_maximum(workers) * np.sqrt(count) * (forward + backward)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = EXCHANGES[choice.strategy](job, choice, wiring, workers, doing)
        if choice.one_update:
            found = found.after_sums(job, wiring, workers)
        found = found.among(workers > 1, doing)
    if choice.strategy == "local":
        wait = wait / np.sqrt(choice.every)  # over a round fast and slow steps of a worker even out
    elif choice.strategy == "replicas" or choice.mode == "async":
        wait = np.zeros_like(wait)
    computing = doing.forward + doing.backward + found.update + doing.other + found.computing
    step = computing + found.exposed + wait
    error = _error(step, computing + wait, found.exposed, errors)
    words = job.share(workers) * workers * count
    return Forecast(
        workers,
        step,
        computing,
        found.exposed,
        found.overlapped,
        wait,
        found.bytes_sent,
        words,
        step / (1 + error),
        step * (1 + error),
    )


def _error(step: Column, computing: Column, exposed: Column, errors: tuple[float, float, float]) -> Column:
    """Errors of different causes add up as the sides of a right angle do."""
    of_computing, of_link, of_model = errors
    return np.sqrt((of_computing * computing / step) ** 2 + (of_link * exposed / step) ** 2 + of_model**2)
