"""One worker's journal file: steps as columns, all other lines as events."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lockstep.explain.reading.steps import WIDTH, Steps, make_row
from lockstep.run.journal import Line, lines
from lockstep.run.standing import Columns, find_standing

BLOCK_VALUES = 4096 * WIDTH
"""Values of step lines that are collected before they are appended to the columns."""


@dataclass(frozen=True)
class JournalFile:
    all_steps: Steps  # in the order in which they were written
    branches: list[str | None]  # of every step, where workers may join and leave; otherwise empty
    events: list[Line]
    steps_before: list[int]  # the number of step lines before each event
    damaged: int

    def select_standing_steps(self, other_events: Iterable[Line]) -> Steps:
        """Returns every step that stands once. `other_events` are those of the run's other journals."""
        steps = self.all_steps
        columns = Columns(steps.step, steps.part, steps.attempt, self.branches)
        events = zip(self.steps_before, self.events, strict=True)
        return steps.where(find_standing(columns, events, other_events))


def read_file(path: Path) -> JournalFile:
    """Reads a missing file as empty. Skips and counts lines that are damaged or incomplete."""
    columns, rows = [array("d") for _ in range(WIDTH)], array("d")
    branches, events, steps_before, damaged = list[str | None](), list[Line](), list[int](), 0
    for line in lines(path) if path.exists() else ():
        try:
            if line is None:
                raise ValueError
            if line["kind"] == "step":
                rows.fromlist(make_row(line))  # adds the complete row, or nothing
                branches.append(line.get("branch"))
                if len(rows) == BLOCK_VALUES:
                    _append_rows(columns, rows)
                    rows = array("d")
            else:
                float(line["time"])
                events.append(line)
                steps_before.append(len(branches))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            damaged += 1
    _append_rows(columns, rows)
    all_steps = Steps(*map(np.asarray, columns))
    return JournalFile(all_steps, branches if any(branches) else [], events, steps_before, damaged)


def _append_rows(columns: "list[array[float]]", rows: "array[float]") -> None:
    """Appends rows to the columns block by block, so that a long journal is never in memory twice."""
    for column, values in zip(columns, np.asarray(rows).reshape(-1, WIDTH).T, strict=True):
        column.frombytes(values.tobytes())


def get_seconds(line: Line, name: str = "seconds") -> float:
    """Returns how long an event took, or 0 when the line does not say."""
    seconds = line.get(name)
    return float(seconds) if isinstance(seconds, int | float) else 0.0
