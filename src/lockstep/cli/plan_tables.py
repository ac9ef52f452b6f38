"""Tables of predictions and of their errors, for a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from lockstep.lab.plan.predict import Plan, PlanRow
    from lockstep.lab.plan.score import Score


def score_table(scores: "Sequence[Score]") -> "Table":
    """Predicted and measured step times, and the errors of the predictions."""

    from lockstep.explain.formatting import seconds

    table = _table(
        "Predicted and measured", ["setting", "link"], ["workers", "predicted", "interval", "measured", "error"]
    )
    for one in scores:
        mark = "" if one.is_inside else " *"
        times = (seconds(one.predicted), f"{seconds(one.low)} to {seconds(one.high)}", seconds(one.measured))
        table.add_row(one.name, one.link, f"{one.workers:,}", *times, f"{one.error:+.1%}{mark}")
    table.caption = "time of a step; * the measurement is outside of the interval"
    return table


def list_tables(made: "Plan") -> "list[Table]":
    """The predictions, in one table for each link."""
    from lockstep.explain.formatting import bits

    tables = []
    for link in dict.fromkeys(row.link for row in made.rows):
        rows = [row for row in made.rows if row.link == link]
        title = (
            f"{made.cluster}, {made.device}: link {link} ({bits(8 * rows[0].link_bytes_per_second)} for an exchange)"
        )
        heads = ["work-\ners", "step", "from-to\nin ms", f"{made.unit}/s", "speed-\nup", "ex-\nposed"]
        heads += ["to the\nend"] * (made.steps is not None) + ["dol-\nlars"] * (rows[0].dollars is not None)
        table = _table(title, ["strategy"], heads)
        for before, row in zip([None, *rows], rows, strict=False):
            table.add_row("" if before and before.name == row.name else row.name, *_cells(row))
        end = f"; the end is step {made.steps:,}" if made.steps is not None else ""
        table.caption = f"nine of ten measured steps should take from-to{end}"
        tables.append(table)
    return tables


def _cells(row: "PlanRow") -> list[str]:
    from lockstep.explain.formatting import count, number, seconds, share

    cells = [
        f"{row.workers:,}",
        seconds(row.step_seconds),
        f"{number(1e3 * row.low, 2)}-{number(1e3 * row.high, 2)}",
        count(row.words_per_second),
        f"{number(row.speedup, 3 if row.speedup >= 0.1 else 2)}x",
        share(row.exposed / row.step_seconds),
    ]
    if row.seconds is not None:
        cells.append(seconds(row.seconds))
    if row.dollars is not None:
        cells.append(number(row.dollars, 2))
    return cells


def _table(title: str, left: list[str], right: list[str]) -> "Table":
    """A table that fits into 80 columns: names break between words, figures never break."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, title=title, title_justify="left", title_style="bold", caption_justify="left")
    table.pad_edge, table.collapse_padding = False, True
    for head in left:
        table.add_column(head, min_width=min(14, max(6, len(head))))
    for head in right:
        table.add_column(head, justify="right", no_wrap=True)
    return table
