"""Predicts the time of a step: computing, exposed communication, and waiting for the slowest worker."""

from dataclasses import dataclass

import numpy as np

from lockstep.explain.reading.steps import Column
from lockstep.lab.plan.costs import Wiring, expected_maximum
from lockstep.lab.plan.exchanges import EXCHANGES, ComputeSeconds
from lockstep.lab.plan.planned_job import Choice, PlannedJob

Errors = tuple[Column | float, float, float]
"""Relative errors of computing, of the link and of the model."""


@dataclass(frozen=True)
class Forecast:
    """Columns over the worker counts, [counts]. Times are seconds of a step."""

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


def forecast(job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, errors: Errors) -> Forecast:
    """Predicts a step for every worker count."""
    workers = np.asarray(workers, np.float64)
    forward, backward = job.profile.compute_seconds(job.words_per_worker(workers))
    slowdown, point, count = job.slowdown(workers), job.profile.points[-1], choice.accumulate
    before = count * forward + (count - 1) * backward
    compute = ComputeSeconds(slowdown * before, slowdown * backward, slowdown * point.update, slowdown * point.other)
    waiting = job.profile.spread * expected_maximum(workers) * np.sqrt(count) * (forward + backward)
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = EXCHANGES[choice.strategy](job, choice, wiring, workers, compute)
        if choice.is_synchronous:
            cost = cost.add_batch_norm(job, wiring, workers)
        cost = cost.keep_where(workers > 1, compute)
    if choice.strategy == "local":
        waiting = waiting / np.sqrt(choice.every)  # fast and slow steps of a worker average out over a round
    elif choice.strategy == "replicas" or choice.mode == "async":
        waiting = np.zeros_like(waiting)
    computing = compute.forward + compute.backward + cost.update + compute.other + cost.computing
    step = computing + cost.exposed + waiting
    error = _combine_errors(step, computing + waiting, cost.exposed, errors)
    words = job.words_per_worker(workers) * workers * count
    return Forecast(
        workers,
        step,
        computing,
        cost.exposed,
        cost.overlapped,
        waiting,
        cost.bytes_sent,
        words,
        step / (1 + error),
        step * (1 + error),
    )


def _combine_errors(step: Column, computing: Column, exposed: Column, errors: Errors) -> Column:
    """Adds independent errors in quadrature."""
    of_computing, of_link, of_model = errors
    return np.sqrt((of_computing * computing / step) ** 2 + (of_link * exposed / step) ** 2 + of_model**2)
