"""Attributes lost speed-up to causes.

Every worker computes the same share of a step as one worker alone, so any additional time of a step is lost speed-up.
Independent replicas are the reference: the time by which they compute longer than one worker is contention on the host, for
every strategy, and only the time beyond that is communication. All values are in units of speed-up. The causes and the rest
that they do not explain add up to the loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.lab.study.sample import TrialSample, take_median

NAMES = {
    "contention": "contention on the host",
    "input": "input",
    "imbalance": "imbalance",
    "communication": "exposed communication",
    "update": "update",
}
SMALL = 0.03
"""A loss below this share of the ideal speed-up has no cause worth naming."""


@dataclass(frozen=True)
class Attribution:
    """Lost speed-up by cause. A negative value is a gain, or noise."""

    workers: int
    speedup: float
    by_cause: dict[str, float]
    rest: float

    @property
    def lost(self) -> float:
        return self.workers - self.speedup

    @property
    def largest_cause(self) -> str | None:
        """The cause that takes most; None if hardly anything is lost."""
        if self.lost < SMALL * self.workers:
            return None
        return max(self.by_cause, key=lambda name: self.by_cause[name])

    @property
    def is_explained(self) -> bool:
        """Whether the rest is less than a twentieth of the loss, or close to zero."""
        return abs(self.rest) <= max(0.05 * abs(self.lost), 0.005 * self.workers)


def attribute(
    sample: TrialSample, replicas: TrialSample, alone: TrialSample, update_is_remote: bool = False
) -> Attribution:
    """Attributes the lost speed-up of one trial. With `update_is_remote` servers make the update, and waiting for it is
    part of `merge`: the time beyond that of a worker's own update is communication."""
    here, apart = sample.scale_to(alone.words_per_step), replicas.scale_to(alone.words_per_step)
    more = {name: here.parts[name] - alone.parts[name] for name in here.parts}
    seconds = {
        "contention": apart.parts["work"] - alone.parts["work"],
        "input": more["input"],
        "imbalance": more["imbalance"],
        "communication": more["merge"] + here.parts["work"] - apart.parts["work"],
        "update": more["update"],
    }
    if update_is_remote:
        seconds["communication"] += seconds["update"]
        seconds["update"] = 0.0
    unit = sample.workers / here.step  # lost speed-up per second of a step
    by_cause = {name: unit * value for name, value in seconds.items()}
    speedup = sample.words_per_second / alone.words_per_second
    return Attribution(sample.workers, speedup, by_cause, sample.workers - speedup - sum(by_cause.values()))


@dataclass(frozen=True)
class Loss:
    """The lost speed-up of a cell: in its median round, and in every round."""

    median: Attribution
    rounds: list[Attribution]

    @property
    def is_consistent(self) -> bool:
        """Whether the same cause is the largest in every round."""
        return all(one.largest_cause == self.median.largest_cause for one in self.rounds)

    def find_spread(self, cause: str) -> tuple[float, float]:
        """Returns the smallest and the largest value of a cause in any round."""
        values = [one.by_cause[cause] for one in self.rounds]
        return min(values), max(values)


def attribute_rounds(
    samples: Sequence[TrialSample],
    replicas: Sequence[TrialSample],
    alone: Sequence[TrialSample],
    update_is_remote: bool = False,
) -> Loss:
    """Attributes the lost speed-up of a cell. The three sequences are in the order of the rounds."""
    rounds = [attribute(*three, update_is_remote) for three in zip(samples, replicas, alone, strict=False)]
    return Loss(attribute(take_median(samples), take_median(replicas), take_median(alone), update_is_remote), rounds)
