"""Charts as plain plotly figures. Colours are names of the style sheet's variables: the page fills them in for light and
dark; `--blue/0.2` is a blue that lets four fifths of the light through."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.errors import LockstepError
from lockstep.explain.answer import Chart
from lockstep.explain.formatting import fine, number
from lockstep.explain.reading.steps import Column

Part = dict[str, Any]
"""A piece of a plotly figure."""
PHASE_COLOURS = {
    "input": "--purple",
    "forward": "--sky",
    "backward": "--blue",
    "merge": "--vermilion",
    "update": "--green",
}
"""A phase has the same colour wherever it is drawn."""
MOST_POINTS, MOST_DOTS, TABLE_ROWS = 400, 700, 12
LABEL_PIXELS = 15
"""Height of a line of text."""


@dataclass(frozen=True)
class Line:
    """A line of a chart, labelled at its right end, or above it when another one goes on from there."""

    label: str
    x: Column
    y: Column
    colour: str
    dash: str = "solid"
    markers: bool = False
    width: float = 2.0
    goes_on: bool = False


@dataclass(frozen=True)
class Band:
    """The space between two lines."""

    x: Column
    low: Column
    high: Column
    colour: str


def evenly(count: int, most: int) -> list[int]:
    """At most `most` places out of `count`, the first and the last among them."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(most, count)).tolist()}) if count else []


def thin(x: Column, y: Column, most: int = MOST_POINTS) -> tuple[Column, Column]:
    """At most `most` points: means of neighbours."""
    known = np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) <= most:
        return x, y
    cuts = np.linspace(0, len(x), most + 1).astype(int)
    sizes = np.diff(cuts)
    return np.add.reduceat(x, cuts[:-1]) / sizes, np.add.reduceat(y, cuts[:-1]) / sizes


def lines(
    name: str,
    title: str,
    says: str,
    drawn: Sequence[Line],
    x_title: str,
    y_title: str,
    bands: Sequence[Band] = (),
    marks: Sequence[tuple[float, str]] = (),
    zero: bool = False,
    height: int = 300,
) -> Chart:
    """Lines over a common axis; `marks` are upright lines with a word each."""
    named = [line for line in drawn if len(line.x)] if len(drawn) > 1 else []
    places = np.concatenate([line.x for line in drawn])
    first, last = (float(places.min()), float(places.max())) if len(places) else (0.0, 1.0)
    room = 0.02 * (last - first or 1.0)
    layout: Part = {
        "xaxis": {"title": {"text": x_title}, "tickformat": "~s", "range": [first - room, last + room]},
        "yaxis": {"title": {"text": y_title}, "rangemode": "tozero" if zero else "normal"},
        "annotations": _end_labels(named, height) + [_mark_label(x, text) for x, text in marks],
        "shapes": [_upright(x) for x, _ in marks],
        "hovermode": "x unified",
        "margin": {"r": 12 + 7 * max((len(line.label) for line in named if not line.goes_on), default=0)},
    }
    data = [*(_band(band) for band in bands), *(_line(line) for line in drawn)]
    heads, rows = _table(drawn, x_title)
    return Chart(name, title, says, {"data": data, "layout": layout}, heads, rows, height)


def _band(band: Band) -> Part:
    return {
        "type": "scatter",
        "x": _short(np.concatenate([band.x, band.x[::-1]])),
        "y": _short(np.concatenate([band.high, band.low[::-1]])),
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": band.colour,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _line(line: Line) -> Part:
    x, y = thin(line.x, line.y)
    return {
        "type": "scatter",
        "x": _short(x),
        "y": _short(y),
        "mode": "lines+markers" if line.markers else "lines",
        "line": {"color": line.colour, "width": line.width, "dash": line.dash},
        "marker": {"color": line.colour, "size": 6},
        "name": line.label,
        "hovertemplate": f"%{{y:.4~g}}<extra>{line.label}</extra>",
        "showlegend": False,
    }


def _short(values: Any) -> list[float | None]:
    """Five digits are more than a screen shows."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in np.asarray(values, np.float64).tolist()]


def _end_labels(drawn: Sequence[Line], height: int) -> list[Part]:
    """Each line's name at its last point, pushed apart where they would cover each other."""
    known = [line for line in drawn if np.isfinite(line.y).any()]
    values = np.concatenate([line.y[np.isfinite(line.y)] for line in known]) if known else np.zeros(1)
    pixels = (height - 80) / (float(np.ptp(values)) or 1.0)
    labels: list[Part] = []
    reached = -np.inf
    for line in sorted(known, key=lambda one: float(thin(one.x, one.y)[1][-1])):
        x, y = (float(column[-1]) for column in thin(line.x, line.y))
        label: Part = {"text": line.label, "font": {"color": f"{line.colour}-text"}, "showarrow": False}
        if not line.goes_on:
            reached = max(y * pixels, reached + LABEL_PIXELS)
            labels.append(label | {"x": x, "y": y, "xanchor": "left", "xshift": 6, "yshift": reached - y * pixels})
        elif line.y[0] > line.y[-1]:
            labels.append(label | {"x": float(line.x[0]), "y": float(line.y[0]), "xanchor": "left", "xshift": 8})
        else:
            labels.append(label | {"x": x, "y": y, "xanchor": "right", "yshift": LABEL_PIXELS})
    return labels


def _mark_label(x: float, text: str) -> Part:
    common: Part = {"yref": "paper", "y": 1.0, "yanchor": "bottom", "showarrow": False, "font": {"color": "--muted"}}
    return common | {"x": x, "text": text}


def _upright(x: float) -> Part:
    line = {"color": "--muted", "width": 1, "dash": "dot"}
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _table(drawn: Sequence[Line], x_title: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A dozen rows of the first line's x, with every line's value there."""
    first = drawn[0].x
    rows = []
    for place in evenly(len(first), TABLE_ROWS):
        x = float(first[place])
        rows.append((f"{x:,.0f}" if x == round(x) else number(x), *(_near(line, x) for line in drawn)))
    return (x_title, *(line.label for line in drawn)), rows


def _near(line: Line, x: float) -> str:
    if not len(line.x) or x < line.x[0] or x > line.x[-1]:
        return "-"
    value = float(line.y[int(np.abs(line.x - x).argmin())])
    return fine(value) if np.isfinite(value) else "-"


def stacked(
    name: str,
    title: str,
    says: str,
    labels: Sequence[str],
    parts: Mapping[str, tuple[Sequence[float], str]],
    x_title: str,
    unit: Callable[[float], str] = number,
) -> Chart:
    """Horizontal bars of parts: {part: (value per bar, colour)}. A part too small for its name goes without it."""
    data: list[Part] = [
        {
            "type": "bar",
            "orientation": "h",
            "x": _short(values),
            "y": list(labels),
            "name": part,
            "marker": {"color": colour, "line": {"color": "--paper", "width": 1}},
            "text": [part] * len(labels),
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "textfont": {"color": "--on-blue" if colour == "--blue" else "--on-light"},
            "hovertext": [f"{part}: {unit(value)}" for value in values],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "showlegend": False,
        }
        for part, (values, colour) in parts.items()
    ]
    layout: Part = {
        "barmode": "stack",
        "xaxis": {"title": {"text": x_title}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "dtick": 1},
        "uniformtext": {"minsize": 10, "mode": "hide"},
        "bargap": 0.35,
        "margin": {"t": 8},
    }
    rows = [(label, *(unit(values[i]) for values, _ in parts.values())) for i, label in enumerate(labels)]
    legend = tuple((part, colour) for part, (_, colour) in parts.items())
    height = 80 + 42 * len(labels)
    return Chart(name, title, says, {"data": data, "layout": layout}, ("", *parts), rows, height, legend)


def bars(
    name: str,
    title: str,
    says: str,
    labels: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    x_title: str,
    colours: Sequence[str] | str = "--blue",
) -> Chart:
    """Horizontal bars, each with its value at its end."""
    bar: Part = {
        "type": "bar",
        "orientation": "h",
        "x": _short(values),
        "y": list(labels),
        "text": list(texts),
        "textposition": "outside",
        "textangle": 0,
        "cliponaxis": False,
        "marker": {"color": colours if isinstance(colours, str) else list(colours)},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    layout: Part = {
        "xaxis": {"title": {"text": x_title}, "range": [0, 1.3 * max([*values, 0.0]) or 1.0]},
        "yaxis": {"autorange": "reversed", "type": "category", "dtick": 1},
        "bargap": 0.4,
        "margin": {"t": 8},
    }
    rows = list(zip(labels, texts, strict=True))
    return Chart(name, title, says, {"data": [bar], "layout": layout}, ("", x_title), rows, 80 + 34 * len(labels))


def columns(
    name: str,
    title: str,
    says: str,
    labels: Sequence[str],
    groups: Mapping[str, tuple[Sequence[float], str]],
    x_title: str,
    y_title: str,
) -> Chart:
    """Upright bars side by side: {group: (value per label, colour)}."""
    data: list[Part] = [
        {
            "type": "bar",
            "x": list(labels),
            "y": _short(values),
            "name": group,
            "marker": {"color": colour},
            "hovertemplate": f"%{{x}}: %{{y:,}}<extra>{group}</extra>",
            "showlegend": False,
        }
        for group, (values, colour) in groups.items()
    ]
    layout: Part = {
        "xaxis": {"title": {"text": x_title}, "type": "category"},
        "yaxis": {"title": {"text": y_title}, "rangemode": "tozero", "tickformat": "~s"},
        "bargap": 0.15,
        "margin": {"t": 8},
    }
    rows = [(label, *(number(values[i]) for values, _ in groups.values())) for i, label in enumerate(labels)]
    legend = tuple((group, colour) for group, (_, colour) in groups.items()) if len(groups) > 1 else ()
    return Chart(name, title, says, {"data": data, "layout": layout}, (x_title, *groups), rows, 280, legend)


def spread(
    name: str, title: str, says: str, values: Column, marks: Sequence[tuple[float, str]], x_title: str, y_title: str
) -> Chart:
    """How often which value came, up to the 99th percentile; `marks` are upright lines with a word each."""
    top = max(float(np.quantile(values, 0.99)), *(x for x, _ in marks))
    shown = values[values <= top]
    low, high = float(shown.min()), float(shown.max())
    if high - low <= 1e-9 * abs(high):  # equal but for rounding: too narrow to divide
        low, high = low - 0.5, high + 0.5
    counts, edges = np.histogram(shown, min(60, max(8, int(2 * np.sqrt(len(shown))))), (low, high))
    bar: Part = {
        "type": "bar",
        "x": _short((edges[:-1] + edges[1:]) / 2),
        "y": counts.tolist(),
        "width": 0.92 * float(edges[1] - edges[0]),
        "marker": {"color": "--sky"},
        "hovertemplate": "%{y} at %{x:.4~g}<extra></extra>",
        "showlegend": False,
    }
    middle = float(edges[0] + edges[-1]) / 2
    labels = [
        _mark_label(x, text) | {"xanchor": "right" if x > middle else "left", "yshift": LABEL_PIXELS * (place % 2)}
        for place, (x, text) in enumerate(sorted(marks))
    ]
    layout: Part = {
        "xaxis": {"title": {"text": x_title}},
        "yaxis": {"title": {"text": y_title}, "rangemode": "tozero"},
        "annotations": labels,
        "shapes": [_upright(x) for x, _ in marks],
        "margin": {"t": 44},
    }
    found = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    rows = [(f"{fine(low)} to {fine(high)}", str(count)) for low, high, count in found if count]
    return Chart(name, title, says, {"data": [bar], "layout": layout}, (x_title, y_title), rows)


def dots(
    name: str,
    title: str,
    says: str,
    x: Column,
    y: Column,
    x_title: str,
    y_title: str,
    straight: tuple[float, float] | None = None,
    label: str = "",
) -> Chart:
    """A scatter plot; `straight` is (start, slope) of a line through it."""
    if len(x) > MOST_DOTS:
        chosen = np.random.default_rng(0).choice(len(x), MOST_DOTS, replace=False)
        x, y = x[chosen], y[chosen]
    cloud: Part = {
        "type": "scatter",
        "x": _short(x),
        "y": _short(y),
        "mode": "markers",
        "marker": {"color": "--blue/0.45", "size": 6},
        "hovertemplate": "%{x:.3~g}, %{y:.4~g}<extra></extra>",
        "showlegend": False,
    }
    data, notes = [cloud], list[Part]()
    if straight is not None:
        ends = np.array([x.min(), x.max()])
        data.append(_line(Line(label, ends, straight[0] + straight[1] * ends, "--vermilion", "dash")))
        corner: Part = {"xref": "paper", "yref": "paper", "x": 0.02, "y": 0.98, "xanchor": "left", "yanchor": "top"}
        notes.append(corner | {"text": label, "showarrow": False, "font": {"color": "--vermilion-text"}})
    layout: Part = {
        "xaxis": {"title": {"text": x_title}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": y_title}, "rangemode": "tozero"},
        "annotations": notes,
    }
    order = np.argsort(x)
    places = [int(order[place]) for place in evenly(len(x), TABLE_ROWS)]
    rows = [(number(float(x[place])), fine(float(y[place]))) for place in places]
    return Chart(name, title, says, {"data": data, "layout": layout}, (x_title, y_title), rows)


@cache
def plotly_script() -> str:
    """plotly.js out of the Python package, without importing it."""
    found = find_spec("plotly")
    if found is None or not found.submodule_search_locations:
        raise LockstepError("The package plotly is not installed, and the page's charts need it.", "pip install plotly")
    return (Path(found.submodule_search_locations[0]) / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
