"""The plan as one page that needs no network: plotly's script is inside it."""

from typing import Any

import numpy as np

from lockstep.explain.answer import Chart
from lockstep.explain.formatting import bits, count, number, seconds, share
from lockstep.explain.pages.charts import Band, Line, draw_lines, draw_stacked_bars
from lockstep.explain.pages.html_page import render
from lockstep.lab.plan.predict import Plan, PlanRow

COLOURS = ("--blue", "--vermilion", "--green", "--purple", "--orange", "--sky", "--grey", "--brown", "--yellow")
HEADS = ("strategy", "workers", "step", "interval", "speed", "speed-up", "exposed")


def page(plan: Plan) -> str:
    links = [_link(plan, link, place) for place, link in enumerate(dict.fromkeys(row.link for row in plan.rows))]
    charts = [chart for link in links for chart in link["charts"]]
    return render("plan.html.j2", charts, plan=plan, links=links)


def _link(plan: Plan, link: str, place: int) -> dict[str, Any]:
    rows = [row for row in plan.rows if row.link == link]
    charts = [_where(rows, place)]
    if len({row.workers for row in rows}) > 1:
        charts.insert(0, _speedup(rows, place))
    heads = (*HEADS, *(("to the end",) * (plan.steps is not None)), *(("dollars",) * (rows[0].dollars is not None)))
    return {
        "name": link,
        "rate": bits(8 * rows[0].link_bytes_per_second),
        "charts": charts,
        "heads": heads,
        "rows": [_cells(row, plan.unit) for row in rows],
    }


def _speedup(rows: list[PlanRow], place: int) -> Chart:
    drawn, bands, most = list[Line](), list[Band](), max(row.workers for row in rows)
    for number_, name in enumerate(dict.fromkeys(row.name for row in rows)):
        mine = [row for row in rows if row.name == name]
        x, y = np.array([float(row.workers) for row in mine]), np.array([row.speedup for row in mine])
        step = np.array([row.step_seconds for row in mine])
        low, high = (y * step / np.array([getattr(row, end) for row in mine]) for end in ("high", "low"))
        colour = COLOURS[number_ % len(COLOURS)]
        drawn.append(Line(name, x, y, colour, markers=len(x) < 12))
        bands.append(Band(x, low, high, f"{colour}/0.12"))
    best = max((row for row in rows if row.workers == most), key=lambda row: row.speedup)
    says = f"With {most:,} workers {best.name} is the fastest: {number(best.speedup)} times as fast as one worker."
    title = "Speed-up against one worker, with the interval of each prediction"
    return draw_lines(
        f"speedup-{'abcdefghij'[place % 10]}", title, says, drawn, "workers", "times as fast", bands, height=380
    )


def _where(rows: list[PlanRow], place: int) -> Chart:
    """Of the largest number of workers: what a step is made of."""
    most = max(row.workers for row in rows)
    shown = [row for row in rows if row.workers == most]
    parts = {
        "computing": ([1e3 * row.computing for row in shown], "--blue"),
        "exposed communication": ([1e3 * row.exposed for row in shown], "--vermilion"),
        "waiting for the slowest": ([1e3 * row.waiting for row in shown], "--orange"),
    }
    worst = max(shown, key=lambda row: row.exposed / row.step_seconds)
    says = f"{worst.name} waits for the link for {share(worst.exposed / worst.step_seconds)} of a step."
    title = f"Where a step of {most:,} workers goes"
    labels = [row.name for row in shown]
    chart = draw_stacked_bars(f"where-{'abcdefghij'[place % 10]}", title, says, labels, parts, "milliseconds of a step")
    chart.figure["layout"]["yaxis"]["dtick"] = 1  # every bar has its name
    return chart


def _cells(row: PlanRow, unit: str) -> tuple[str, ...]:
    cells = (
        row.name,
        count(row.workers),
        seconds(row.step_seconds),
        f"{seconds(row.low)} to {seconds(row.high)}",
        f"{count(row.words_per_second)} {unit}/s",
        f"{number(row.speedup)}x",
        share(row.exposed / row.step_seconds),
    )
    ends = (None if row.seconds is None else seconds(row.seconds), None if row.dollars is None else number(row.dollars))
    return (*cells, *(end for end in ends if end is not None))
