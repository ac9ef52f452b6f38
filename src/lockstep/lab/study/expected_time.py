"""How long a study will take, from one short trial, and which part of it fits into a given time."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from lockstep.lab.study.cells import NO_LINK, Cell, Matrix

PROBE_STEPS = 3
"""Measured steps of the trial that the first estimate is based on."""
FEWEST_STEPS = 5
"""Fewer measured steps are not planned to save time."""
UNKNOWN = 3.0
"""How many times longer than computing alone a step may be, because of the exchange that was not measured."""


@dataclass(frozen=True)
class Probe:
    """A short trial of one worker alone."""

    start_seconds: float  # the trial without its steps
    step_seconds: float
    batch: int

    def estimate(self, cell: Cell, matrix: Matrix) -> tuple[float, float]:
        """Returns the least and the most seconds that a trial of a cell should take."""
        processes = cell.workers + cell.servers
        crowding = max(1.0, processes * matrix.threads / len(os.sched_getaffinity(0)))
        steps = (matrix.warmup + matrix.steps) * self.step_seconds * cell.batch / self.batch
        low = self.start_seconds + steps
        unknown = 1.5 if processes == 1 else UNKNOWN * (1.0 if cell.link == NO_LINK else 2.0)
        return low, crowding * (1.5 * self.start_seconds + unknown * steps)

    def estimate_matrix(self, matrix: Matrix) -> tuple[float, float]:
        """Returns the least and the most seconds of a study."""
        ranges = [self.estimate(cell, matrix) for cell in matrix.list_cells()]
        return matrix.rounds * sum(low for low, _ in ranges), matrix.rounds * sum(high for _, high in ranges)

    def estimate_middle(self, matrix: Matrix) -> float:
        """Returns the middle of that range."""
        return sum(self.estimate_matrix(matrix)) / 2


def describe_range(low: float, high: float) -> str:
    """Returns `12 to 25 minutes`, or seconds for short times."""
    if high < 120:
        return f"{low:.0f} to {high:.0f} seconds"
    return f"{low / 60:.0f} to {high / 60:.0f} minutes"


def fit_into(matrix: Matrix, probe: Probe, seconds: float) -> tuple[Matrix, list[str]]:
    """Returns the part of a study whose expected time fits, and what was left out: first rounds, then steps, then batches,
    links, strategies and worker counts from the end. One round of the smallest part always stays, with one worker alone and
    with several: without them there is no speed-up to explain. Even that may not fit."""
    left_out = list[str]()
    while probe.estimate_middle(matrix) > seconds and (smaller := _shrink(matrix)) is not None:
        matrix, what = smaller
        left_out = [text for text in left_out if text.partition(":")[0] != what.partition(":")[0]] + [what]
    return matrix, left_out


def is_part_of(part: Matrix, complete: Matrix) -> bool:
    """Whether `fit_into` may have made `part` from `complete`."""
    groups = [(getattr(part, name), getattr(complete, name)) for name in ("workers", "strategies", "links", "batches")]
    same = replace(part, steps=complete.steps, rounds=complete.rounds, threads=complete.threads)
    narrowed = replace(
        complete, workers=part.workers, strategies=part.strategies, links=part.links, batches=part.batches
    )
    return same == narrowed and part.steps <= complete.steps and all(set(few) <= set(many) for few, many in groups)


def _shrink(matrix: Matrix) -> tuple[Matrix, str] | None:
    """Returns the matrix with one thing less, and what is left; None when nothing can be left out."""
    has_rounds = any(strategy.startswith("local") for strategy in matrix.strategies)  # a round must end with the steps
    if matrix.rounds > 1:
        rounds = matrix.rounds - 1
        return replace(matrix, rounds=rounds), f"rounds: only {rounds}"
    if matrix.steps > FEWEST_STEPS and not has_rounds:
        return replace(matrix, steps=FEWEST_STEPS), f"steps: only {FEWEST_STEPS}"
    shorten: list[tuple[str, tuple[object, ...], Callable[[], Matrix]]] = [
        ("batches", matrix.batches, lambda: replace(matrix, batches=matrix.batches[:-1])),
        ("links", matrix.links, lambda: replace(matrix, links=matrix.links[:-1])),
        ("strategies", matrix.strategies, lambda: replace(matrix, strategies=matrix.strategies[:-1])),
        ("workers", matrix.workers, lambda: replace(matrix, workers=matrix.workers[:-1])),
    ]
    for name, values, make in shorten:
        if len(values) > 1 and (name != "workers" or matrix.workers[-2] > 1):
            return make(), f"{name}: only {', '.join(map(str, values[:-1]))}"
    return None
