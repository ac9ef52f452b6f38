"""How much of the cores other programs used while the measured steps were computed."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from lockstep.explain.reading.json_access import get_number
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column, Steps

DISTURBING = 0.10
"""From this share of the cores on, figures are said to be those of a disturbed run."""


@dataclass(frozen=True)
class Disturbance:
    """The mean share of the cores that other programs used, by host. Empty where it was not sampled."""

    shares: dict[str, float]

    @property
    def share(self) -> float | None:
        """The share of the most disturbed host; None where it was not sampled."""
        return max(self.shares.values(), default=None)

    @property
    def is_disturbed(self) -> bool:
        return self.share is not None and self.share > DISTURBING

    def sentence(self) -> str:
        """Returns what disturbed the run; empty when nothing did."""
        if not self.is_disturbed:
            return ""
        worst = max(self.shares, key=lambda host: self.shares[host])
        where = f" of {worst}" if len(self.shares) > 1 else ""
        used = f"{100 * self.shares[worst]:.0f} % of the cores{where}"
        return f"Other programs used {used} during the measured steps: the figures below are of a disturbed run."


@dataclass(frozen=True)
class DisturbanceSample:
    """The share of a host's cores that other programs used in the `seconds` before `end`."""

    host: str
    end: float
    seconds: float
    others: float


def measure_disturbance(record: Record) -> Disturbance:
    """Averages the samples of each host over the time of the measured steps."""
    steps = record.select_measured({record.primary.rank: record.primary}).primary
    seconds, used = defaultdict[str, float](float), defaultdict[str, float](float)
    samples = _list_samples(record) if len(steps) else []
    moments = np.array([(sample.end - sample.seconds, sample.end) for sample in samples]).reshape(-1, 2)
    for sample, overlap in zip(samples, np.diff(_count_seconds_before(moments, steps))[:, 0].tolist(), strict=True):
        seconds[sample.host] += overlap
        used[sample.host] += sample.others * overlap
    return Disturbance({host: used[host] / seconds[host] for host in seconds if seconds[host] > 0})


def _list_samples(record: Record) -> list[DisturbanceSample]:
    """Returns the samples of all workers that say what other programs used."""
    samples = []
    for worker in record.workers.values():
        for line in worker.select_events("system"):
            others, length = get_number(line.get("others")), get_number(line.get("seconds"))
            if others is not None and length:
                samples.append(DisturbanceSample(str(line.get("host", "?")), float(line["time"]), length, others))
    return samples


def _count_seconds_before(moments: Column, steps: Steps) -> Column:
    """Returns how many seconds of the steps lie before each moment."""
    ends, seconds = steps.time, steps.seconds
    place = np.searchsorted(ends, moments)  # steps that have ended
    before = np.concatenate([[0.0], np.cumsum(seconds)])[place]
    current = np.minimum(place, len(steps) - 1)
    running = np.clip(moments - (ends - seconds)[current], 0.0, seconds[current])
    return before + np.where(place < len(steps), running, 0.0)
