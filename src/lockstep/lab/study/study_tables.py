"""The tables of a study, for terminal, text and page."""

from lockstep.explain.appendix import Table
from lockstep.explain.formatting import count, seconds
from lockstep.explain.reading.steps import PHASES
from lockstep.lab.study.causes import NAMES
from lockstep.lab.study.cells import Matrix
from lockstep.lab.study.results import Results, StudyRow

SHOWN = ("forward", "backward", "merge", "update", "input")
"""Phases in the order of field report 5, input last."""


def make_label(row: StudyRow, matrix: Matrix) -> str:
    """Returns the label of the cell, with its batch if there are several."""
    return f"{row.cell.label}, {row.cell.batch:,} {matrix.unit}" if len(matrix.batches) > 1 else row.cell.label


def make_tables(results: Results, matrix: Matrix) -> list[Table]:
    tables = [make_speed_table(results, matrix), make_step_table(results, matrix)]
    return [*tables, make_loss_table(results, matrix)] if max(matrix.workers) > 1 else tables


def make_speed_table(results: Results, matrix: Matrix) -> Table:
    heads = ("workers, strategy", "total time", f"{results.unit}/s", "spread", "speed-up", "efficiency", "of replicas")
    rows = []
    for row in results.rows:
        speed = row.sample.words_per_second
        cells = (
            make_label(row, matrix),
            seconds(row.sample.total),
            count(speed),
            f"{row.lowest / speed - 1:+.0%} {row.highest / speed - 1:+.0%}",
            f"{row.speedup:.2f}",
            f"{row.efficiency:.0%}",
            "-" if row.of_replicas is None else f"{row.of_replicas:.0%}",
        )
        rows.append(cells)
    note = (
        f"Total time is that of the {matrix.steps} measured steps. Spread is that of the slowest and the fastest round. "
        f"Speed-up is over one worker alone with the same share of a step, and efficiency is its share of the ideal. The "
        f"last column is the speed relative to independent replicas."
    )
    return Table("How fast", heads, rows, note)


def make_step_table(results: Results, matrix: Matrix) -> Table:
    assert set(SHOWN) == set(PHASES)
    rows = []
    for row in results.rows:
        rest = row.sample.step - sum(row.sample.phases.values())
        values = [*(row.sample.phases[phase] for phase in SHOWN), rest, row.sample.step]
        rows.append((make_label(row, matrix), *(f"{1e3 * value:,.1f}" for value in values)))
    note = (
        "Milliseconds of a step, mean over the workers. Merge is waiting for the exchange. Between steps a worker "
        "writes its journal."
    )
    return Table("Where a step goes", ("workers, strategy", *SHOWN, "between", "step"), rows, note)


def make_loss_table(results: Results, matrix: Matrix) -> Table:
    rows = []
    for row in results.rows:
        if row.loss is None:
            continue
        loss = row.loss.median
        causes = [f"{_format(value)}{'*' * (cause == loss.largest_cause)}" for cause, value in loss.by_cause.items()]
        rows.append((make_label(row, matrix), _format(loss.lost), *causes, _format(loss.rest)))
    note = (
        "In units of speed-up: lost is the number of workers less the speed-up. The causes and the rest, which has no "
        "known cause, add up to it. Contention: independent replicas compute longer than one worker alone. "
        "Communication: exposed waiting for the exchange, and computing that is slower than in replicas. A star marks "
        "the largest cause. A negative value is a gain, or noise."
    )
    return Table("Lost speed-up by cause", ("workers, strategy", "lost", *NAMES, "rest"), rows, note)


def _format(value: float) -> str:
    """Returns two digits after the point, without a minus before zero."""
    return f"{round(value, 2) + 0.0:.2f}"
