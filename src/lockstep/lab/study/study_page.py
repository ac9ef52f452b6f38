"""A finished study as one offline page, and as text."""

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
from lockstep.lab.study import study_tables
from lockstep.lab.study.cells import NO_LINK, YARDSTICK, Matrix, spoken
from lockstep.lab.study.results import Results, StudyRow
from lockstep.lab.study.shares import NAMES
from lockstep.lab.study.study_file import Study

PAGE, TEXT = "study.html", "study.md"
COLOURS = ("--grey", "--blue", "--vermilion", "--green", "--purple", "--orange", "--sky", "--brown", "--yellow")
"""Of replicas first."""
CAUSE_COLOURS = {
    "contention": "--orange",
    "input": "--purple",
    "imbalance": "--sky",
    "communication": "--vermilion",
    "update": "--green",
}

Part = tuple[str, Table, list[Chart]]


def write(study: Study, found: Results) -> tuple[Path, Path]:
    places = study.folder / PAGE, study.folder / TEXT
    matrix = study.matrix
    parts = _parts(found, matrix)
    workers = ", ".join(str(workers) for workers in matrix.workers)
    device, began = study.environment.get("device"), study.environment["began"]
    told = {
        "name": study.folder.resolve().name,
        "about": f"{workers} workers · {study.environment.get('precision')} · {device} · begun {began}",
        "found": found,
        "parts": parts,
    }
    more = {
        "environment": json.dumps(study.environment, indent=2, ensure_ascii=False),
        "job": yaml.safe_dump(study.settings["job"], sort_keys=False, allow_unicode=True),
    }
    try:
        write_atomically(places[1], str(templates().get_template("study.md.j2").render(**told)))
        write_atomically(
            places[0], render("study.html.j2", [one for _, _, drawn in parts for one in drawn], **told, **more)
        )
    except OSError as error:
        why = f"The study cannot be written to {study.folder}: {error.strerror}."
        raise LockstepError(why, "What was measured is kept: the same command goes on.") from None
    return places


def _parts(found: Results, matrix: Matrix) -> list[Part]:
    several = max(matrix.workers) > 1
    drawn = {
        "speed": [*(_speedups(found, matrix) if several else []), _speeds(found, matrix)],
        "step": [_phases(found, matrix)],
        "lost": [_lost(found, matrix)] if several else [],
    }
    return [(id, table, drawn[id]) for id, table in zip(drawn, study_tables.tables(found, matrix), strict=False)]


def _speedups(found: Results, matrix: Matrix) -> list[Chart]:
    """One for every batch and link: workers to the right, speed-up upwards."""
    counts = sorted({1, *matrix.workers})
    drawn = []
    for batch in matrix.batches:
        for link in matrix.links:
            shown = _lines(found, matrix, batch, link)
            says = "; ".join(
                f"{line.label} {number(float(line.y[-1]))} with {int(line.x[-1])} workers" for line in shown
            )
            where = "" if link == NO_LINK else f" over {link}"
            size = f", {batch:,} {matrix.unit} a worker" if len(matrix.batches) > 1 else ""
            name, title = f"speedup-{link}-{batch}".replace(".", "-"), f"Speed-up{where}{size}"
            chart = charts.draw_lines(name, title, says, shown, "workers", "times one worker", zero=True, height=340)
            layout = chart.figure["layout"]
            layout["xaxis"] |= {"tickvals": counts, "tickformat": "d"}
            layout |= {"annotations": [], "margin": {"r": 12, "t": 8}}  # names of many lines need a legend
            drawn.append(replace(chart, legend=tuple((line.label, line.colour) for line in shown)))
    return drawn


def _lines(found: Results, matrix: Matrix, batch: int, link: str) -> list[Line]:
    counts = np.array(sorted({1, *matrix.workers}), float)
    shown = [Line("ideal", counts, counts, "--pale", "dash")]
    for place, strategy in enumerate(dict.fromkeys((YARDSTICK, *matrix.strategies))):
        over = NO_LINK if strategy == YARDSTICK else link
        rows = [row for row in found.rows if row.loss is not None and row.cell.strategy == strategy]
        here = [row for row in rows if row.cell.batch == batch and row.cell.link == over]
        x = np.array([1.0, *(float(row.cell.workers) for row in here)])
        y = np.array([1.0, *(row.speedup for row in here)])
        dash = "dot" if strategy == YARDSTICK else "solid"
        shown.append(Line(spoken(strategy), x, y, COLOURS[place % len(COLOURS)], dash, markers=True))
    return shown


def _speeds(found: Results, matrix: Matrix) -> Chart:
    labels = [study_tables.label(row, matrix) for row in found.rows]
    values = [row.sample.words_per_second for row in found.rows]
    texts = [count(value) for value in values]
    colours = ["--blue" if row.loss is not None else "--pale" for row in found.rows]
    says = "; ".join(f"{label} {text}" for label, text in zip(labels, texts, strict=True))
    title = f"{found.unit.capitalize()} per second, all workers, median round"
    return _folded(
        charts.draw_bars("words-per-second", title, says, labels, values, texts, f"{found.unit} per second", colours)
    )


def _phases(found: Results, matrix: Matrix) -> Chart:
    labels = [study_tables.label(row, matrix) for row in found.rows]
    parts = {
        phase: ([1e3 * row.sample.phases[phase] for row in found.rows], PHASE_COLOURS[phase]) for phase in PHASE_COLOURS
    }
    says = "; ".join(f"{label} {milliseconds(row.sample.step)}" for label, row in zip(labels, found.rows, strict=True))
    title = "A step by phase, mean over the workers"
    return _folded(
        charts.draw_stacked_bars(
            "phases", title, says, labels, parts, "milliseconds", lambda value: f"{number(value)} ms"
        )
    )


def _lost(found: Results, matrix: Matrix) -> Chart:
    rows = [row for row in found.rows if row.loss is not None]
    labels = [study_tables.label(row, matrix) for row in rows]
    parts = {"reached": ([row.speedup for row in rows], "--blue")}
    for cause, name in NAMES.items():
        parts[name] = ([max(0.0, _share(row, cause)) for row in rows], CAUSE_COLOURS[cause])
    says = "; ".join(
        f"{label} {row.speedup:.2f} of {row.cell.workers}" for label, row in zip(labels, rows, strict=True)
    )
    title = "Reached, and what took the rest (shares below nothing are not drawn)"
    return _folded(
        charts.draw_stacked_bars("lost", title, says, labels, parts, "times one worker", lambda value: f"{value:.2f}")
    )


def _folded(chart: Chart) -> Chart:
    """Long names of bars in two lines, so that they fit on a phone."""
    for bar in chart.figure["data"]:
        bar["y"] = [re.sub("[:,] ?", "<br>", name, count=1) for name in bar["y"]]
    return chart


def _share(row: StudyRow, cause: str) -> float:
    assert row.loss is not None
    return row.loss.shares.by_cause[cause]
