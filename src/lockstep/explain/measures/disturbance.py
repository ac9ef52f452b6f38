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


def measure_disturbance(record: Record) -> Disturbance:
    """Averages the samples of each host over the time of the measured steps."""
    steps = record.select_measured({record.primary.rank: record.primary}).primary
    seconds, used = defaultdict[str, float](float), defaultdict[str, float](float)
    for worker in record.workers.values() if len(steps) else ():
        for line in worker.select_events("system"):
            others, length = get_number(line.get("others")), get_number(line.get("seconds"))
            if others is None or not length:
                continue
            end = float(line["time"])
            begin, end = _count_seconds_before(np.array([end - length, end]), steps)
            host = str(line.get("host", "?"))
            seconds[host] += end - begin
            used[host] += others * (end - begin)
    return Disturbance({host: used[host] / seconds[host] for host in seconds if seconds[host] > 0})


def _count_seconds_before(moments: Column, steps: Steps) -> Column:
    """Returns how many seconds of the steps lie before each moment."""
    begins, total = steps.time - steps.seconds, np.cumsum(steps.seconds)
    place = np.searchsorted(steps.time, moments)  # steps that have ended
    before = np.concatenate([[0.0], total])[place]
    current = np.minimum(place, len(steps) - 1)
    running = np.clip(moments - begins[current], 0.0, steps.seconds[current])
    return before + np.where(place < len(steps), running, 0.0)
