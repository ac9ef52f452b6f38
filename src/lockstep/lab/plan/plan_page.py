"""Renders a plan as one HTML page that needs no network."""

from typing import NamedTuple

import numpy as np

from lockstep.explain.answer import Chart
from lockstep.explain.formatting import bits, count, number, seconds, share
from lockstep.explain.pages.charts import Band, Line, draw_lines, draw_stacked_bars
from lockstep.explain.pages.html_page import render
from lockstep.lab.plan.predict import Plan, PlanRow

COLOURS = ("--blue", "--vermilion", "--green", "--purple", "--orange", "--sky", "--grey", "--brown", "--yellow")
HEADS = ("strategy", "workers", "step", "interval", "speed", "speed-up", "exposed")


class LinkSection(NamedTuple):
    """The part of the page about one link."""

    name: str
    rate: str
    charts: list[Chart]
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]


def render_plan(plan: Plan) -> str:
    names = dict.fromkeys(row.link for row in plan.rows)
    links = [_make_section(plan, name, index) for index, name in enumerate(names)]
    charts = [chart for link in links for chart in link.charts]
    return render("plan.html.j2", charts, plan=plan, links=links)


def _make_section(plan: Plan, link: str, index: int) -> LinkSection:
    rows = [row for row in plan.rows if row.link == link]
    charts = [_draw_step(rows, index)]
    if len({row.workers for row in rows}) > 1:
        charts.insert(0, _draw_speedup(rows, index))
    heads = (*HEADS, *(("to the end",) * (plan.steps is not None)), *(("dollars",) * (rows[0].dollars is not None)))
    rate = bits(8 * rows[0].link_bytes_per_second)
    return LinkSection(link, rate, charts, heads, [_make_cells(row, plan.unit) for row in rows])


def _draw_speedup(rows: list[PlanRow], index: int) -> Chart:
    drawn, bands, most = list[Line](), list[Band](), max(row.workers for row in rows)
    for place, name in enumerate(dict.fromkeys(row.name for row in rows)):
        own = [row for row in rows if row.name == name]
        x, y = np.array([float(row.workers) for row in own]), np.array([row.speedup for row in own])
        step = np.array([row.step_seconds for row in own])
        low, high = y * step / np.array([row.high for row in own]), y * step / np.array([row.low for row in own])
        colour = COLOURS[place % len(COLOURS)]
        drawn.append(Line(name, x, y, colour, markers=len(x) < 12))
        bands.append(Band(x, low, high, f"{colour}/0.12"))
    best = max((row for row in rows if row.workers == most), key=lambda row: row.speedup)
    text = f"With {most:,} workers {best.name} is the fastest: {number(best.speedup)} times as fast as one worker."
    title = "Speed-up over one worker, with the interval of each prediction"
    name = f"speedup-{'abcdefghij'[index % 10]}"
    return draw_lines(name, title, text, drawn, "workers", "times as fast", bands, height=380)


def _draw_step(rows: list[PlanRow], index: int) -> Chart:
    """Draws the parts of a step with the largest number of workers."""
    most = max(row.workers for row in rows)
    largest = [row for row in rows if row.workers == most]
    parts = {
        "computing": ([1e3 * row.computing for row in largest], "--blue"),
        "exposed communication": ([1e3 * row.exposed for row in largest], "--vermilion"),
        "waiting for the slowest": ([1e3 * row.waiting for row in largest], "--orange"),
    }
    worst = max(largest, key=lambda row: row.exposed / row.step_seconds)
    text = f"{worst.name} waits for the link during {share(worst.exposed / worst.step_seconds)} of a step."
    title = f"What a step of {most:,} workers consists of"
    labels = [row.name for row in largest]
    chart = draw_stacked_bars(f"where-{'abcdefghij'[index % 10]}", title, text, labels, parts, "milliseconds of a step")
    chart.figure["layout"]["yaxis"]["dtick"] = 1  # a label for every bar
    return chart


def _make_cells(row: PlanRow, unit: str) -> tuple[str, ...]:
    cells = (
        row.name,
        count(row.workers),
        seconds(row.step_seconds),
        f"{seconds(row.low)} to {seconds(row.high)}",
        f"{count(row.words_per_second)} {unit}/s",
        f"{number(row.speedup)}x",
        share(row.exposed / row.step_seconds),
    )
    totals = (
        None if row.seconds is None else seconds(row.seconds),
        None if row.dollars is None else number(row.dollars),
    )
    return (*cells, *(total for total in totals if total is not None))
