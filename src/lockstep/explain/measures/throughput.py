"""How fast a run processes its data, and what watching it costs."""

import numpy as np

from lockstep.explain.reading.journal_file import get_seconds
from lockstep.explain.reading.record import Record, Worker
from lockstep.explain.reading.steps import Steps


def measure_words_per_second(record: Record) -> float | None:
    """Returns target words (or images) per second of all workers. Workers that do not step together may stop early or
    have no step after the warm-up, so their words are divided by the time of the worker that was busy longest."""
    workers = [steps for steps in record.measured.workers.values() if len(steps)]
    if not workers:
        return None
    if all(steps.is_global for steps in workers):
        return float(np.nansum(workers[0].global_words) / workers[0].seconds.sum())
    words = sum(np.nansum(steps.target_words) for steps in workers)
    return float(words / max(steps.seconds.sum() for steps in workers))


def measure_watching(steps: Steps, worker: Worker) -> float:
    """Returns the time for clock, journal, TensorBoard, progress and sampler as a share of the step time. The training loop
    spends its part between steps; the sampler runs in a separate thread."""
    samples = worker.select_events("system")
    sampler = sum(line.get("own", 0.0) for line in samples) / max(1e-9, sum(map(get_seconds, samples)))
    return float(np.nansum(steps.watching) / steps.seconds.sum()) + sampler
