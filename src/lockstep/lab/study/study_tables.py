"""The tables of a study, for terminal, text and page."""

from lockstep.explain.appendix import Table
from lockstep.explain.formatting import count, seconds
from lockstep.explain.reading.steps import PHASES
from lockstep.lab.study.cells import Matrix
from lockstep.lab.study.results import Results, StudyRow
from lockstep.lab.study.shares import NAMES

SHOWN = ("forward", "backward", "merge", "update", "input")
"""Phases in the order of field report 5, input last."""


def label(row: StudyRow, matrix: Matrix) -> str:
    """With the batch, where there are several."""
    return f"{row.cell.label}, {row.cell.batch:,} {matrix.unit}" if len(matrix.batches) > 1 else row.cell.label


def tables(found: Results, matrix: Matrix) -> list[Table]:
    return [speed(found, matrix), breakdown(found, matrix), *([lost(found, matrix)] if max(matrix.workers) > 1 else [])]


def speed(found: Results, matrix: Matrix) -> Table:
    heads = ("workers, strategy", "total time", f"{found.unit}/s", "spread", "speed-up", "efficiency")
    rows = [
        (
            label(row, matrix),
            seconds(row.sample.total),
            count(row.sample.words_per_second),
            f"{row.lowest / row.sample.words_per_second - 1:+.0%} {row.highest / row.sample.words_per_second - 1:+.0%}",
            f"{row.speedup:.2f}",
            f"{row.efficiency:.0%}",
            "-" if row.of_replicas is None else f"{row.of_replicas:.0%}",
        )
        for row in found.rows
    ]
    note = (
        f"Total time is that of {matrix.steps} measured steps. Spread: the slowest and the fastest round. Speed-up is "
        f"against one worker alone with the same share of a step, efficiency its part of the ideal; the last column is the "
        f"speed against independent replicas."
    )
    return Table("How fast", (*heads, "of replicas"), rows, note)


def breakdown(found: Results, matrix: Matrix) -> Table:
    assert set(SHOWN) == set(PHASES)
    rows = []
    for row in found.rows:
        rest = row.sample.step - sum(row.sample.phases.values())
        cells = [*(row.sample.phases[phase] for phase in SHOWN), rest, row.sample.step]
        rows.append((label(row, matrix), *(f"{1e3 * value:,.1f}" for value in cells)))
    note = (
        "Milliseconds of a step, mean over the workers. Merge is what was waited for; the journal lies between steps."
    )
    return Table("Where a step goes", ("workers, strategy", *SHOWN, "between", "step"), rows, note)


def lost(found: Results, matrix: Matrix) -> Table:
    rows = []
    for row in found.rows:
        if row.loss is None:
            continue
        shares = row.loss.shares
        marked = [f"{_plain(value)}{'*' * (cause == shares.cause)}" for cause, value in shares.by_cause.items()]
        rows.append((label(row, matrix), _plain(shares.lost), *marked, _plain(shares.rest)))
    note = (
        "In units of speed-up: n workers lack so much of n; the shares and the rest, which is not explained, add up to it. "
        "Contention is what forward and backward take longer in independent replicas than alone, communication is what is "
        "exposed of it. The largest share has a star; a negative one is a gain, or noise."
    )
    return Table("Where the missing speed-up went", ("workers, strategy", "lost", *NAMES, "rest"), rows, note)


def _plain(value: float) -> str:
    """Two digits, and no minus before a zero."""
    return f"{round(value, 2) + 0.0:.2f}"
