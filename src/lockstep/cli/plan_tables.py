"""Predictions and scores as tables for a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from lockstep.lab.plan.plan import Plan, Row
    from lockstep.lab.plan.score import Score


def score_table(scores: "Sequence[Score]") -> "Table":
    from lockstep.explain.units import seconds

    table = _table(
        "Predicted and measured", ["setting", "link"], ["workers", "predicted", "interval", "measured", "error"]
    )
    for one in scores:
        inside = "" if one.inside else " *"
        times = (seconds(one.predicted), f"{seconds(one.low)} to {seconds(one.high)}", seconds(one.measured))
        table.add_row(one.name, one.link, f"{one.workers:,}", *times, f"{one.error:+.1%}{inside}")
    table.caption = "seconds of a step; * outside of its interval"
    return table


def tables(made: "Plan") -> "list[Table]":
    """One for each link."""
    from lockstep.explain.units import bits

    shown = []
    for link in dict.fromkeys(row.link for row in made.rows):
        rows = [row for row in made.rows if row.link == link]
        title = (
            f"{made.cluster}, {made.device}: link {link} ({bits(8 * rows[0].link_bytes_per_second)} for an exchange)"
        )
        heads = ["workers", "step", "interval", f"{made.unit}/s", "speed-up", "exposed"]
        heads += ["to the end"] * (made.steps is not None) + ["dollars"] * (rows[0].dollars is not None)
        table = _table(title, ["strategy"], heads)
        for row in rows:
            table.add_row(row.name, *_cells(row))
        if made.steps is not None:
            table.caption = f"the end is step {made.steps:,}"
        shown.append(table)
    return shown


def _cells(row: "Row") -> list[str]:
    from lockstep.explain.units import count, number, seconds, share

    cells = [
        f"{row.workers:,}",
        seconds(row.step_seconds),
        f"{seconds(row.low)} to {seconds(row.high)}",
        count(row.words_per_second),
        f"{number(row.speedup)}x",
        share(row.exposed / row.step_seconds),
    ]
    if row.seconds is not None:
        cells.append(seconds(row.seconds))
    if row.dollars is not None:
        cells.append(number(row.dollars))
    return cells


def _table(title: str, left: list[str], right: list[str]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, title=title, title_justify="left", title_style="bold", caption_justify="left")
    for head in left:
        table.add_column(head, overflow="fold")
    for head in right:
        table.add_column(head, justify="right")
    return table
