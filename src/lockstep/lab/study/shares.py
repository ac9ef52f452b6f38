"""Where the speed-up went that n workers lack of n.

All of them compute the same share of a step as one worker alone, so whatever a step takes longer is lost. Independent
replicas are the yardstick: what computing takes longer with them is contention on the host, whatever the strategy; only
what lies beyond is communication. The shares are in units of speed-up; with what is not explained they add up to the loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.lab.study.sample import TrialSample, middle

NAMES = {
    "contention": "contention on the host",
    "input": "input",
    "imbalance": "imbalance",
    "communication": "exposed communication",
    "update": "update",
}
SMALL = 0.03
"""A loss below this part of the ideal speed-up has no cause worth naming."""


@dataclass(frozen=True)
class Shares:
    """A negative share is a gain, or noise: it is shown as it is."""

    workers: int
    speedup: float
    by_cause: dict[str, float]
    rest: float

    @property
    def lost(self) -> float:
        return self.workers - self.speedup

    @property
    def cause(self) -> str | None:
        """The largest share; None where hardly anything is lost."""
        if self.lost < SMALL * self.workers:
            return None
        return max(self.by_cause, key=lambda name: self.by_cause[name])

    @property
    def explained(self) -> bool:
        """Is less than a twentieth of the loss (or next to nothing) left over?"""
        return abs(self.rest) <= max(0.05 * abs(self.lost), 0.005 * self.workers)


def divide(sample: TrialSample, replicas: TrialSample, alone: TrialSample, update_is_remote: bool = False) -> Shares:
    """`update_is_remote`: the update is made by servers, and waiting for it is part of `merge`. What that takes more than
    one worker's own update is then communication."""
    here, apart = sample.scaled(alone.words_per_step), replicas.scaled(alone.words_per_step)
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
    unit = sample.workers / here.step  # seconds of a step as lost speed-up
    by_cause = {name: unit * value for name, value in seconds.items()}
    speedup = sample.words_per_second / alone.words_per_second
    return Shares(sample.workers, speedup, by_cause, sample.workers - speedup - sum(by_cause.values()))


@dataclass(frozen=True)
class Loss:
    """The shares of a cell's median round, and those of every round, in which all cells were measured one after another."""

    shares: Shares
    rounds: list[Shares]

    @property
    def is_consistent(self) -> bool:
        """Whether the same share is the largest in every round."""
        return all(one.cause == self.shares.cause for one in self.rounds)

    def spread(self, cause: str) -> tuple[float, float]:
        found = [one.by_cause[cause] for one in self.rounds]
        return min(found), max(found)


def loss(
    samples: Sequence[TrialSample],
    replicas: Sequence[TrialSample],
    alone: Sequence[TrialSample],
    update_is_remote: bool = False,
) -> Loss:
    rounds = [divide(*three, update_is_remote) for three in zip(samples, replicas, alone, strict=False)]
    return Loss(divide(middle(samples), middle(replicas), middle(alone), update_is_remote), rounds)
