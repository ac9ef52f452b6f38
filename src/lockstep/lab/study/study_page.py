"""Writes a finished study as one HTML page that needs no network, and as Markdown."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from lockstep.errors import LockstepError
from lockstep.explain.answer import Chart
from lockstep.explain.appendix import Table
from lockstep.explain.formatting import count, milliseconds, number
from lockstep.explain.pages import charts
from lockstep.explain.pages.charts import PHASE_COLOURS, Line
from lockstep.explain.pages.html_page import render, templates
from lockstep.files import write_atomically
from lockstep.lab.study.causes import NAMES
from lockstep.lab.study.cells import NO_LINK, REPLICAS, Matrix, describe_strategy
from lockstep.lab.study.results import Results, StudyRow
from lockstep.lab.study.study_file import Study
from lockstep.lab.study.study_tables import make_label, make_tables
from lockstep.terminal_text import strip_controls

PAGE, TEXT = "study.html", "study.md"
COLOURS = ("--grey", "--blue", "--vermilion", "--green", "--purple", "--orange", "--sky", "--brown", "--yellow")
"""Colours of the strategies; the first is for replicas."""
CAUSE_COLOURS = {
    "contention": "--orange",
    "input": "--purple",
    "imbalance": "--sky",
    "communication": "--vermilion",
    "update": "--green",
}

Part = tuple[str, Table, list[Chart]]
"""A section of the page: its id, its table and its charts."""


def write_study(study: Study, results: Results) -> tuple[Path, Path]:
    """Writes the page and the Markdown file into the folder of the study, and returns their paths."""
    page, text = study.folder / PAGE, study.folder / TEXT
    matrix, environment = study.matrix, study.environment
    parts = _make_parts(results, matrix)
    charts = [chart for _, _, drawn in parts for chart in drawn]
    name = study.folder.resolve().name
    workers = ", ".join(str(workers) for workers in matrix.workers)
    machine = f"{environment.get('precision')} · {environment.get('device')}"
    about = f"{workers} workers · {machine} · begun {environment['began']}"
    markdown = templates().get_template("study.md.j2").render(name=name, about=about, results=results, parts=parts)
    html = render(
        "study.html.j2",
        charts,
        name=name,
        about=about,
        results=results,
        parts=parts,
        environment=json.dumps(environment, indent=2, ensure_ascii=False),
        job=yaml.safe_dump(study.settings["job"], sort_keys=False, allow_unicode=True),
    )
    try:
        write_atomically(text, strip_controls(markdown))
        write_atomically(page, html)
    except OSError as error:
        raise LockstepError(
            f"The study cannot be written to {study.folder}: {error.strerror}.",
            "All measurements are saved: start the same command again.",
        ) from None
    return page, text


def _make_parts(results: Results, matrix: Matrix) -> list[Part]:
    several = max(matrix.workers) > 1
    drawn = {
        "speed": [*(_draw_speedups(results, matrix) if several else []), _draw_speeds(results, matrix)],
        "step": [_draw_phases(results, matrix)],
        "lost": [_draw_loss(results, matrix)] if several else [],
    }
    return [(id, table, drawn[id]) for id, table in zip(drawn, make_tables(results, matrix), strict=False)]


def _draw_speedups(results: Results, matrix: Matrix) -> list[Chart]:
    """Draws the speed-up over the number of workers, a chart for every batch and link."""
    counts = sorted({1, *matrix.workers})
    drawn = []
    for batch in matrix.batches:
        for link in matrix.links:
            shown = _make_lines(results, matrix, batch, link)
            text = "; ".join(
                f"{line.label} {number(float(line.y[-1]))} with {int(line.x[-1])} workers" for line in shown
            )
            where = "" if link == NO_LINK else f" over {link}"
            size = f", {batch:,} {matrix.unit} per worker" if len(matrix.batches) > 1 else ""
            name, title = f"speedup-{link}-{batch}".replace(".", "-"), f"Speed-up{where}{size}"
            chart = charts.draw_lines(name, title, text, shown, "workers", "times one worker", zero=True, height=340)
            layout = chart.figure["layout"]
            layout["xaxis"] |= {"tickvals": counts, "tickformat": "d"}
            layout |= {"annotations": [], "margin": {"r": 12, "t": 8}}  # many lines need a legend
            drawn.append(replace(chart, legend=tuple((line.label, line.colour) for line in shown)))
    return drawn


def _make_lines(results: Results, matrix: Matrix, batch: int, link: str) -> list[Line]:
    counts = np.array(sorted({1, *matrix.workers}), float)
    shown = [Line("ideal", counts, counts, "--pale", "dash")]
    for place, strategy in enumerate(dict.fromkeys((REPLICAS, *matrix.strategies))):
        over = NO_LINK if strategy == REPLICAS else link
        rows = [row for row in results.rows if row.loss is not None and row.cell.strategy == strategy]
        here = [row for row in rows if row.cell.batch == batch and row.cell.link == over]
        x = np.array([1.0, *(float(row.cell.workers) for row in here)])
        y = np.array([1.0, *(row.speedup for row in here)])
        dash = "dot" if strategy == REPLICAS else "solid"
        shown.append(Line(describe_strategy(strategy), x, y, COLOURS[place % len(COLOURS)], dash, markers=True))
    return shown


def _draw_speeds(results: Results, matrix: Matrix) -> Chart:
    labels = [make_label(row, matrix) for row in results.rows]
    values = [row.sample.words_per_second for row in results.rows]
    texts = [count(value) for value in values]
    colours = ["--blue" if row.loss is not None else "--pale" for row in results.rows]
    text = "; ".join(f"{label} {value}" for label, value in zip(labels, texts, strict=True))
    title = f"{results.unit.capitalize()} per second, all workers, median round"
    return _wrap_labels(
        charts.draw_bars("words-per-second", title, text, labels, values, texts, f"{results.unit} per second", colours)
    )


def _draw_phases(results: Results, matrix: Matrix) -> Chart:
    labels = [make_label(row, matrix) for row in results.rows]
    parts = {
        phase: ([1e3 * row.sample.phases[phase] for row in results.rows], PHASE_COLOURS[phase])
        for phase in PHASE_COLOURS
    }
    text = "; ".join(
        f"{label} {milliseconds(row.sample.step)}" for label, row in zip(labels, results.rows, strict=True)
    )
    title = "Phases of a step, mean over the workers"
    return _wrap_labels(
        charts.draw_stacked_bars(
            "phases", title, text, labels, parts, "milliseconds", lambda value: f"{number(value)} ms"
        )
    )


def _draw_loss(results: Results, matrix: Matrix) -> Chart:
    rows = [row for row in results.rows if row.loss is not None]
    labels = [make_label(row, matrix) for row in rows]
    parts = {"speed-up": ([row.speedup for row in rows], "--blue")}
    for cause, name in NAMES.items():
        parts[name] = ([max(0.0, _get_lost(row, cause)) for row in rows], CAUSE_COLOURS[cause])
    text = "; ".join(
        f"{label} {row.speedup:.2f} of {row.cell.workers}" for label, row in zip(labels, rows, strict=True)
    )
    title = "Speed-up, and lost speed-up by cause (negative values are not drawn)"
    return _wrap_labels(
        charts.draw_stacked_bars("lost", title, text, labels, parts, "times one worker", lambda value: f"{value:.2f}")
    )


def _wrap_labels(chart: Chart) -> Chart:
    """Breaks the label of each bar into two lines, so that it fits on a phone."""
    for bar in chart.figure["data"]:
        bar["y"] = [re.sub("[:,] ?", "<br>", name, count=1) for name in bar["y"]]
    return chart


def _get_lost(row: StudyRow, cause: str) -> float:
    assert row.loss is not None
    return row.loss.median.by_cause[cause]
