"""How much a run computed, and how much of what its workers can do at best that was."""

from collections.abc import Iterable
from dataclasses import dataclass

from lockstep.watch.journal import Line


@dataclass(frozen=True)
class Arithmetic:
    """Figures of all workers together. A share above one is none: something else disturbed the probe of the peak."""

    parameters: int | None = None
    flops_per_word: float | None = None  # forward and backward, per target word
    flops_per_second: float | None = None
    peak_flops: float | None = None
    mfu: float | None = None  # share of the peak

    def text(self) -> str:
        """Rate, share of the peak, and what one target word takes."""
        share = "the peak is not known"
        if self.mfu is not None and self.peak_flops is not None:
            share = f"{self.mfu:.0%} of the workers' measured peak, {metric(self.peak_flops)}FLOP/s"
        per_word = f"{metric(self.flops_per_word or 0.0)}FLOP per target word"
        return f"{metric(self.flops_per_second or 0.0)}FLOP/s ({share}); {per_word}"


def metric(value: float) -> str:
    """46_100_000 -> '46.1 M'."""
    prefixes = ["", "k", "M", "G", "T", "P"]
    while value >= 999.5 and len(prefixes) > 1:
        value, prefixes = value / 1000, prefixes[1:]
    return f"{value:.3g} {prefixes[0]}"


def arithmetic(models: list[Line], measured: Iterable[tuple[int, float, float]]) -> Arithmetic:
    """From `model` lines, and (attempt, target words, seconds) of measured steps: launches may differ in their workers."""
    if not models:
        return Arithmetic()
    by_attempt = {line["attempt"]: line for line in models if line["flops_per_word"]}
    flops = seconds = possible = 0.0
    for attempt, words, duration in measured:
        if (model := by_attempt.get(attempt)) is not None:
            flops += words * model["flops_per_word"]
            seconds += duration
            possible += duration * (model["peak_flops_all"] or 0.0)
    last = models[-1]
    share = flops / possible if possible else None
    return Arithmetic(
        last["parameters"],
        last["flops_per_word"],
        flops / seconds if seconds else None,
        last["peak_flops_all"],
        share if share is not None and share <= 1 else None,
    )
