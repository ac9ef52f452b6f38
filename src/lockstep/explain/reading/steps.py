"""Step lines of a journal as columns: a long run has hundreds of thousands of them in every worker's journal."""

import math
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from lockstep.run.journal import Line

Column = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Steps:
    """Step lines of one worker as columns; what a line does not say is NaN."""

    step: Column
    time: Column
    attempt: Column
    warmup: Column
    applied: Column
    common: Column  # 1 where the loss is the whole team's (scope global), 0 where it is the worker's own
    seconds: Column
    input: Column
    forward: Column
    backward: Column
    merge: Column
    update: Column
    overlapped: Column
    bytes_sent: Column
    loss: Column
    rate: Column
    grad_norm: Column
    source_words: Column
    target_words: Column
    global_words: Column
    epoch: Column
    watching: Column
    staleness: Column
    sums: Column  # seconds within merge: small sums in the middle of the passes, at which all wait for each other
    sums_bytes: Column
    part: Column  # which share of the step, where a worker may take several

    def __len__(self) -> int:
        return len(self.step)

    def where(self, chosen: Mask | npt.NDArray[np.intp]) -> "Steps":
        return Steps(**{column.name: getattr(self, column.name)[chosen] for column in fields(self)})

    @property
    def compute(self) -> Column:
        """Seconds in which the worker itself worked: waiting for input and for others is not in it."""
        return self.forward + self.backward + self.update

    @property
    def under_way(self) -> Column:
        """Seconds in which gradients travelled, hidden behind the backward pass or not."""
        return self.merge - self.sums + self.overlapped


PHASES = ("input", "forward", "backward", "merge", "update")
NO_SUMS = {"seconds": 0.0, "bytes": 0}
WIDTH = len(fields(Steps))


def row(line: Line) -> list[float]:
    """A step line in the order of the columns; raises when it is not one. Journals have millions: keep it lean."""
    phases, words, told = line["phases"], line.get("words") or {}, line.get
    sums = told("sums") or NO_SUMS
    if not isinstance(line["step"], int):
        raise ValueError("a step without a number")
    optional = (
        told("merge_overlapped"),
        told("bytes_sent"),
        told("loss"),
        told("lr"),
        told("grad_norm"),
        words.get("source"),
        words.get("target"),
        told("global_target_words"),
        told("epoch"),
        told("watching"),
        told("staleness"),
    )
    return [
        line["step"],
        line["time"],
        told("attempt", 1),
        told("warmup", False),
        told("applied", True),
        told("scope", "global") == "global",
        line["seconds"],
        phases["input"],
        phases["forward"],
        phases["backward"],
        phases["merge"],
        phases["update"],
        *[math.nan if value is None else value for value in optional],
        sums["seconds"],
        sums["bytes"],
        told("part", 0),
    ]


def joined(steps: Steps, others: Steps) -> Steps:
    """`steps`, and those of `others` that it lacks."""
    missed = others.where(~np.isin(others.step, steps.step))
    if not len(missed):
        return steps
    both = {one.name: np.concatenate([getattr(steps, one.name), getattr(missed, one.name)]) for one in fields(Steps)}
    return Steps(**both).where(np.argsort(np.concatenate([steps.step, missed.step]), kind="stable"))
