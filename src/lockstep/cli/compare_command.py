"""`lockstep runs compare`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from lockstep.explain.compare_runs import ComparedCurve, RunComparison

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 60
NAME_CHARACTERS = 24
"""Longer names of runs are broken into lines."""


def compare(
    runs: Annotated[list[str], typer.Argument(help="Run folders or addresses, or folders that contain runs.")],
    by: Annotated[
        Literal["step", "words", "time"],
        typer.Option(help="Horizontal axis of the curves: steps, words (or images), or wall time."),
    ] = "step",
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page with all curves to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare runs: settings that differ, speed, phases of a step, and curves of loss and score."""
    from lockstep.cli.common import print_json
    from lockstep.cli.find_runs import name_runs
    from lockstep.errors import LockstepError
    from lockstep.explain.compare_runs import compare as compare_runs
    from lockstep.files import disk_error, write_atomically
    from lockstep.remote.fetch_run import fetch_run
    from lockstep.remote.place import is_remote
    from lockstep.safe_console import SafeConsole

    places = name_runs(runs)
    if len(places) < 2:
        raise LockstepError("There is only one run to compare.", "Give two or more runs, or a folder of runs.", code=2)
    comparison = compare_runs({name: fetch_run(run) if is_remote(run) else Path(run) for name, run in places.items()})
    if html is not None:
        from lockstep.explain.pages.compare_page import render_comparison

        try:
            write_atomically(html, render_comparison(comparison))
        except OSError as error:
            raise disk_error(html, error, "name another file") from None
    if as_json:
        print_json(comparison.as_dict())
        return
    console = SafeConsole()
    for part in list_parts(comparison, "seconds" if by == "time" else by, console.width):
        console.print(part)
    if html is not None:
        console.print(f"Page with all curves: {html}", highlight=False, markup=False)


def list_parts(comparison: "RunComparison", axis: str, width: int = 120) -> "list[Table | Text]":
    """The tables and notes to print, for a terminal of `width` columns. Differences in the settings come first, because
    they explain the figures."""
    from rich.text import Text

    from lockstep.cli.common import fold
    from lockstep.explain.compare_rows import list_differences, list_figures

    names = [fold(side.name, NAME_CHARACTERS) for side in comparison.sides]
    shown: list[Table | Text] = []
    for title, differing in (
        ("Settings that differ", comparison.settings),
        ("Differences of the environment", comparison.environment),
    ):
        if differing:
            shown.append(_table(title, ["", *names], list_differences(differing)))
    if not shown:
        shown.append(_table("Settings and environment are the same", ["", *names], []))
    shown += [Text(f"{note}\n", style="yellow") for note in comparison.notes]
    shown.append(_table("Figures", ["", *names], list_figures(comparison), right=True))
    wanted = dict.fromkeys(("training loss", "validation loss", comparison.metric))
    shown += [_curves(comparison, curve, axis, width) for curve in wanted if curve in comparison.shared]
    return shown


def _table(title: str, heads: list[str], rows: Sequence[tuple[str, ...]], right: bool = False) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, title=title, title_justify="left", title_style="bold")
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if right and place else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _curves(comparison: "RunComparison", name: str, axis: str, width: int) -> "Table":
    from lockstep.cli.common import fold

    curves = [side.curves[name] for side in comparison.sides]
    last = max(_axis(curve, axis)[-1] for curve in curves)
    low, high = min(min(curve.value) for curve in curves), max(max(curve.value) for curve in curves)
    names = [fold(side.name, NAME_CHARACTERS) for side in comparison.sides]
    ends = [f"{curve.value[0]:.3f} to {curve.value[-1]:.3f}" for curve in curves]
    taken = max(len(line) for one in names for line in one.split("\n")) + max(map(len, ends)) + 10  # 10: padding
    cells = min(WIDTH, max(10, width - taken))
    drawn = [sparkline(_axis(curve, axis), curve.value, last, low, high, cells) for curve in curves]
    title = f"{name} by {comparison.axes[axis]}, 0 to {last:,.0f}; scale {low:.3f} to {high:.3f}"
    return _table(title, ["", "", "first to last"], list(zip(names, drawn, ends, strict=True)))


def _axis(curve: "ComparedCurve", axis: str) -> list[float]:
    return list(getattr(curve, axis))


def sparkline(x: list[float], y: list[float], last: float, low: float, high: float, width: int = WIDTH) -> str:
    """A row of `width` blocks for the range from 0 to `last`. A block shows the mean of its values, or repeats the block
    before if it has none; after the end of the curve the row is blank."""
    sums, counts = [0.0] * width, [0] * width
    for place, value in zip(x, y, strict=True):
        column = min(width - 1, int(place / last * width)) if last else 0
        sums[column] += value
        counts[column] += 1
    filled = [column for column in range(width) if counts[column]]
    line, level = "", None
    for column in range(width):
        if counts[column]:
            share = (sums[column] / counts[column] - low) / (high - low) if high > low else 0.0
            level = BLOCKS[min(len(BLOCKS) - 1, int(share * len(BLOCKS)))]
        line += level if level and column <= filled[-1] else " "
    return line
