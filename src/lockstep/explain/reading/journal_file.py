"""One worker's journal file: steps as columns, everything else as lines."""

import math
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.explain.reading.steps import WIDTH, Mask, Steps, row
from lockstep.run.journal import Line, lines


@dataclass(frozen=True)
class JournalFile:
    every: Steps  # in the order in which they were written
    branches: list[str | None]  # of every step, where workers come and go; else empty
    events: list[Line]
    damaged: int

    def ancestors(self, start: Line) -> Mask:
        """Which steps led to where `start` says that a worker stood: those of its ancestors, each up to where the next
        one began."""
        try:
            lineage = [(str(name), float(origin)) for name, origin in start["lineage"]]
        except (TypeError, ValueError):
            return np.ones(len(self.every), bool)
        limit, limits = math.inf, dict[str | None, float]({None: math.inf})
        for name, origin in reversed(lineage):
            limits[name] = limit
            limit = min(limit, origin)
        bounds = np.array([limits.get(name, -math.inf) for name in self.branches] or [math.inf])
        return np.asarray(self.every.step <= bounds)


def read_file(path: Path) -> JournalFile:
    """A file that is not there reads as empty; a line that is damaged or tells too little is skipped and counted."""
    columns = array("d")
    branches, events, damaged = list[str | None](), list[Line](), 0
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
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            damaged += 1
    every = Steps(*np.array(columns, np.float64).reshape(-1, WIDTH).T)
    return JournalFile(every, branches if any(branches) else [], events, damaged)


def took(line: Line) -> float:
    """Seconds of an event; none when it does not say."""
    seconds = line.get("seconds")
    return float(seconds) if isinstance(seconds, int | float) else 0.0


def whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) else None
