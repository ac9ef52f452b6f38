"""Which lines of a journal stand. When a worker resumes from a checkpoint or takes over the state of a peer, the steps
that it had computed beyond that state are undone."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Line = dict[str, Any]
Column = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """What decides about lines of one worker's journal, in the order in which they were written."""

    step: Column
    part: Column  # which share of the step, where a worker may take several
    attempt: Column  # compared with other journals only
    branches: Sequence[str | None] = ()  # empty: no line names one


def find_standing(
    columns: Columns, events: Iterable[tuple[int, Line]], other_events: Iterable[Line] = ()
) -> npt.NDArray[np.intp]:
    """Returns the indices of the lines that stand, in the order of the steps. Of several lines of the same step and part
    the last one stands.

    `events` are those of the same journal, each with the number of lines before it. `other_events` are those of the run's
    other journals: a worker that did not take part in a later launch has not journalled where that launch resumed.
    """
    stands = np.ones(len(columns.step), bool)
    lineages = list[Line]()
    for count, line in events:
        step = as_integer(line.get("step"))
        if line["kind"] in ("resume", "heal") and step is not None:
            stands[:count] &= columns.step[:count] <= step
        if "lineage" in line:
            lineages.append(line)
    for line in other_events:
        step, attempt = as_integer(line.get("step")), as_integer(line.get("attempt"))
        if line["kind"] == "resume" and step is not None and attempt is not None:
            stands &= (columns.step <= step) | (columns.attempt >= attempt)
        if "lineage" in line:
            lineages.append(line)
    if lineages and columns.branches:
        lineages.sort(key=lambda line: float(line.get("time", 0.0)))
        stands &= columns.step <= _last_steps(lineages[-1], columns.branches)
    standing = np.flatnonzero(stands)
    key = columns.step[standing] * 2**20 + columns.part[standing]
    _, last = np.unique(key[::-1], return_index=True)
    return standing[len(standing) - 1 - last]


def select_standing(lines: Iterable[Line], kind: str) -> list[Line]:
    """Returns the lines of one kind that stand in a journal, in the order of the steps."""
    chosen, events = list[Line](), list[tuple[int, Line]]()
    for line in lines:
        if line["kind"] == kind:
            chosen.append(line)
        else:
            events.append((len(chosen), line))
    step, part = np.array([(line["step"], line.get("part", 0)) for line in chosen], np.float64).reshape(-1, 2).T
    columns = Columns(step, part, np.ones(len(chosen)), [line.get("branch") for line in chosen])
    return [chosen[index] for index in find_standing(columns, events)]


def _last_steps(line: Line, branches: Sequence[str | None]) -> Column:
    """Where workers come and go, all may die and start again from a checkpoint: a new branch. The lineage of the last
    start names its ancestors and the step at which each began. A step stands if its branch is an ancestor and the next
    one began after it. Returns the last such step of each branch, [lines]."""
    try:
        lineage = [(str(name), float(origin)) for name, origin in line["lineage"]]
    except (TypeError, ValueError):
        return np.full(len(branches), math.inf)
    limit, limits = math.inf, dict[str | None, float]({None: math.inf})
    for name, origin in reversed(lineage):
        limits[name] = limit
        limit = min(limit, origin)
    return np.array([limits.get(name, -math.inf) for name in branches])


def as_integer(value: Any) -> int | None:
    """A number of a line as an integer; None when the line has none."""
    return int(value) if isinstance(value, int | float) else None
