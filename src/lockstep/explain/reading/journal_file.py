"""One worker's journal file: steps as columns, everything else as lines."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lockstep.explain.reading.steps import WIDTH, Steps, row
from lockstep.run.journal import Line, lines
from lockstep.run.standing import Columns, find_standing


@dataclass(frozen=True)
class JournalFile:
    every: Steps  # in the order in which they were written
    branches: list[str | None]  # of every step, where workers come and go; else empty
    events: list[Line]
    steps_before: list[int]  # the number of step lines before each event
    damaged: int

    def standing(self, others: Iterable[Line]) -> Steps:
        """The steps that stand, each once; `others` are events of the run's other journals."""
        columns = Columns(self.every.step, self.every.part, self.every.attempt, self.branches)
        return self.every.where(find_standing(columns, zip(self.steps_before, self.events, strict=True), others))


def read_file(path: Path) -> JournalFile:
    """A file that is not there reads as empty; a line that is damaged or tells too little is skipped and counted."""
    columns = array("d")
    branches, events, steps_before, damaged = list[str | None](), list[Line](), list[int](), 0
    for line in lines(path) if path.exists() else ():
        try:
            if line is None:
                raise ValueError
            if line["kind"] == "step":
                columns.fromlist(row(line))  # all of it, or nothing
                branches.append(line.get("branch"))
            else:
                float(line["time"])
                events.append(line)
                steps_before.append(len(branches))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            damaged += 1
    every = Steps(*np.array(columns, np.float64).reshape(-1, WIDTH).T)
    return JournalFile(every, branches if any(branches) else [], events, steps_before, damaged)


def took(line: Line) -> float:
    """Seconds of an event; none when it does not say."""
    seconds = line.get("seconds")
    return float(seconds) if isinstance(seconds, int | float) else 0.0
