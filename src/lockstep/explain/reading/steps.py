"""Step lines of a journal as columns of numbers. A long run has hundreds of thousands of them per worker."""

import math
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from lockstep.run.journal import Line

Column = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Steps:
    """Step lines of one worker as columns, [steps] each. What a line does not have is NaN."""

    step: Column
    time: Column
    attempt: Column
    warmup: Column
    applied: Column
    global_scope: Column  # 1 where the loss is that of all workers, 0 where it is the worker's own
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
    sums: Column  # seconds of `merge` that synchronized batch norm, within the forward and backward passes
    sums_bytes: Column
    part: Column  # which share of the step, where a worker may take several

    def __len__(self) -> int:
        return len(self.step)

    def where(self, chosen: Mask | npt.NDArray[np.intp]) -> "Steps":
        """Returns the chosen rows of all columns, by a mask or by their indices."""
        return SelectedSteps(self, np.arange(len(self))[chosen])

    @property
    def is_global(self) -> bool:
        """Whether every loss is that of all workers."""
        return bool((self.global_scope == 1).all())

    @property
    def compute(self) -> Column:
        """Seconds in which the worker computed. Waiting for input and for other workers does not count."""
        return self.forward + self.backward + self.update

    @property
    def in_flight(self) -> Column:
        """Seconds in which gradients were sent or received, whether or not the backward pass overlapped them."""
        return self.merge - self.sums + self.overlapped


COLUMNS = tuple(column.name for column in fields(Steps))
WIDTH = len(COLUMNS)


class SelectedSteps(Steps):
    """Rows of other steps. A column is copied when it is read, because a copy of all columns of a long run would need
    hundreds of megabytes. Read a column once before a loop, not in it."""

    _source: Steps
    _rows: npt.NDArray[np.intp]

    def __init__(self, source: Steps, rows: npt.NDArray[np.intp]) -> None:
        self.__dict__.update(_source=source, _rows=rows)

    def __getattr__(self, name: str) -> Column:
        if name not in COLUMNS:
            raise AttributeError(name)
        column: Column = getattr(self._source, name)[self._rows]
        return column

    def __len__(self) -> int:
        return len(self._rows)

    def where(self, chosen: Mask | npt.NDArray[np.intp]) -> Steps:
        return SelectedSteps(self._source, self._rows[chosen])


PHASES = ("input", "forward", "backward", "merge", "update")
NO_SUMS = {"seconds": 0.0, "bytes": 0}


def make_row(line: Line) -> list[float]:
    """Returns a step line in the order of the columns and raises an error when it is not one. This runs once per line,
    millions of times for a long run, so it avoids every extra call."""
    phases, words, get = line["phases"], line.get("words") or {}, line.get
    sums = get("sums") or NO_SUMS
    if not isinstance(line["step"], int):
        raise ValueError("The number of the step is not an integer.")
    optional = (
        get("merge_overlapped"),
        get("bytes_sent"),
        get("loss"),
        get("lr"),
        get("grad_norm"),
        words.get("source"),
        words.get("target"),
        get("global_target_words"),
        get("epoch"),
        get("watching"),
        get("staleness"),
    )
    return [
        line["step"],
        line["time"],
        get("attempt", 1),
        get("warmup", False),
        get("applied", True),
        get("scope", "global") == "global",
        line["seconds"],
        phases["input"],
        phases["forward"],
        phases["backward"],
        phases["merge"],
        phases["update"],
        *[math.nan if value is None else value for value in optional],
        sums["seconds"],
        sums["bytes"],
        get("part", 0),
    ]


def join_steps(steps: Steps, others: Steps) -> Steps:
    """Returns `steps` and those of `others` that are missing there, in order."""
    missed = others.where(~np.isin(others.step, steps.step))
    if not len(missed):
        return steps
    both = Steps(*(np.concatenate([getattr(steps, name), getattr(missed, name)]) for name in COLUMNS))
    return both.where(np.argsort(np.concatenate([steps.step, missed.step]), kind="stable"))
