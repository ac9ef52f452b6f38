"""How much of its steps each worker spent computing."""

from dataclasses import dataclass

import numpy as np

from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import PHASES


@dataclass(frozen=True)
class WorkerUsage:
    """Means over the measured steps of one worker."""

    rank: int
    seconds: float
    phases: dict[str, float]  # seconds
    busy: float  # share of the step in which it computed
    words_per_second: float  # its own target words, or images


def measure_usage(record: Record) -> list[WorkerUsage]:
    """Returns one entry for every worker that has measured steps."""
    usages = []
    for rank, steps in record.measured.workers.items():
        if not len(steps):
            continue
        total = float(steps.seconds.sum())
        phases = {name: float(getattr(steps, name).mean()) for name in PHASES}
        words = float(np.nansum(steps.target_words))
        busy = float(steps.compute.sum()) / total
        usages.append(WorkerUsage(rank, total / len(steps), phases, busy, words / total))
    return usages
