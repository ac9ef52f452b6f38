"""How many FLOP/s a run achieved, and which share of the measured peak that is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lockstep.explain.formatting import flops, si_number
from lockstep.explain.reading.record import Worker
from lockstep.run.journal import Line


@dataclass(frozen=True)
class Arithmetic:
    """Figures of all workers together."""

    parameters: int | None = None
    flops_per_word: float | None = None  # forward and backward, per target word
    flops_per_second: float | None = None
    peak_flops: float | None = None
    mfu: float | None = None  # share of the peak; None also above 1, where something disturbed the probe of the peak
    unit: str = "target words"  # what a "word" is

    def text(self) -> str:
        """Returns the rate, the share of the peak, and the FLOPs of one target word or image, for people."""
        share = "the peak is not known"
        if self.mfu is not None and self.peak_flops is not None:
            share = f"{self.mfu:.0%} of the workers' measured peak, {flops(self.peak_flops)}"
        per_word = f"{si_number(self.flops_per_word or 0.0)}FLOP per {self.unit[:-1]}"
        return f"{flops(self.flops_per_second or 0.0)} ({share}); {per_word}"


def measure_arithmetic(
    workers: Sequence[Worker],
    words_per_second: float | None,
    unit: str = "target words",
    attempts: Sequence[int] | None = None,
) -> Arithmetic:
    """Computes the figures from the journals of all workers, for the launches in `attempts` or for all. `words_per_second`
    is the speed of all workers together. Each worker has its own words, seconds and peak in each launch."""
    known = [(_select_models(worker, attempts), worker.steps.where(worker.steps.warmup == 0)) for worker in workers]
    last_models = [list(models.values())[-1] for models, _ in known if models]
    if not last_models:
        return Arithmetic()
    done = possible = 0.0
    for models, steps in known:
        for attempt, model in models.items():
            own = steps.where(steps.attempt == attempt)
            done += float(np.nansum(own.target_words)) * (model["flops_per_word"] or 0.0)
            possible += float(own.seconds.sum()) * (model["peak_flops"] or 0.0)
    per_word = last_models[0]["flops_per_word"]
    peaks = [line["peak_flops"] or 0.0 for line in last_models]
    share = done / possible if possible and all(peaks) else None
    return Arithmetic(
        last_models[0]["parameters"],
        per_word,
        words_per_second * per_word if words_per_second and per_word else None,
        sum(peaks) if all(peaks) else None,
        share if share is not None and 0 < share <= 1 else None,
        unit,
    )


def _select_models(worker: Worker, attempts: Sequence[int] | None) -> dict[int, Line]:
    """Returns the `model` lines that have all figures, by attempt."""
    needed = {"attempt", "parameters", "flops_per_word", "peak_flops"}
    lines = [line for line in worker.select_events("model") if needed <= line.keys()]
    return {line["attempt"]: line for line in lines if attempts is None or line["attempt"] in attempts}
