"""Draws charts as plain plotly figures. Colours are names of the style sheet's variables, which the page replaces for light
and dark; `--blue/0.2` is blue with an opacity of 0.2."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lockstep.explain.answer import Chart, PlotlyPart
from lockstep.explain.formatting import number, precise
from lockstep.explain.reading.steps import Column

PHASE_COLOURS = {
    "input": "--purple",
    "forward": "--sky",
    "backward": "--blue",
    "merge": "--vermilion",
    "update": "--green",
}
"""The colour of each phase in all charts."""
MOST_POINTS, MOST_DOTS, TABLE_ROWS = 400, 700, 12
LABEL_PIXELS = 15
"""Height of a line of text."""


@dataclass(frozen=True)
class Line:
    """A line of a chart, with its label at its right end, or above it when another line continues from there."""

    label: str
    x: Column
    y: Column
    colour: str
    dash: str = "solid"
    markers: bool = False
    width: float = 2.0
    continued: bool = False


@dataclass(frozen=True)
class Band:
    """The area between two lines."""

    x: Column
    low: Column
    high: Column
    colour: str


def pick_evenly(count: int, most: int) -> list[int]:
    """Returns at most `most` evenly spaced indices below `count`, with the first and the last."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(most, count)).tolist()}) if count else []


def thin(x: Column, y: Column, most: int = MOST_POINTS) -> tuple[Column, Column]:
    """Returns at most `most` points, each the mean of neighbours."""
    known = np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) <= most:
        return x, y
    cuts = np.linspace(0, len(x), most + 1).astype(int)
    sizes = np.diff(cuts)
    return np.add.reduceat(x, cuts[:-1]) / sizes, np.add.reduceat(y, cuts[:-1]) / sizes


def draw_lines(
    name: str,
    title: str,
    description: str,
    drawn: Sequence[Line],
    x_title: str,
    y_title: str,
    bands: Sequence[Band] = (),
    marks: Sequence[tuple[float, str]] = (),
    zero: bool = False,
    height: int = 300,
) -> Chart:
    """Draws lines over a common axis; `marks` are vertical lines with a label each."""
    named = [line for line in drawn if len(line.x)] if len(drawn) > 1 else []
    places = np.concatenate([line.x for line in drawn])
    first, last = (float(places.min()), float(places.max())) if len(places) else (0.0, 1.0)
    margin = 0.02 * (last - first or 1.0)
    layout: PlotlyPart = {
        "xaxis": {"title": {"text": x_title}, "tickformat": "~s", "range": [first - margin, last + margin]},
        "yaxis": {"title": {"text": y_title}, "rangemode": "tozero" if zero else "normal"},
        "annotations": _label_ends(named, height) + [_label_mark(x, text) for x, text in marks],
        "shapes": [_draw_mark(x) for x, _ in marks],
        "hovermode": "x unified",
        "margin": {"r": 12 + 7 * max((len(line.label) for line in named if not line.continued), default=0)},
    }
    data = [*(_draw_band(band) for band in bands), *(_draw_line(line) for line in drawn)]
    heads, rows = _tabulate(drawn, x_title)
    return Chart(name, title, description, {"data": data, "layout": layout}, heads, rows, height)


def _draw_band(band: Band) -> PlotlyPart:
    return {
        "type": "scatter",
        "x": _round(np.concatenate([band.x, band.x[::-1]])),
        "y": _round(np.concatenate([band.high, band.low[::-1]])),
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": band.colour,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _draw_line(line: Line) -> PlotlyPart:
    x, y = thin(line.x, line.y)
    return {
        "type": "scatter",
        "x": _round(x),
        "y": _round(y),
        "mode": "lines+markers" if line.markers else "lines",
        "line": {"color": line.colour, "width": line.width, "dash": line.dash},
        "marker": {"color": line.colour, "size": 6},
        "name": line.label,
        "hovertemplate": f"%{{y:.4~g}}<extra>{line.label}</extra>",
        "showlegend": False,
    }


def _round(values: npt.ArrayLike) -> list[float | None]:
    """Rounds to five digits, more than a screen can show."""
    numbers: list[float] = np.asarray(values, np.float64).tolist()
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in numbers]


def _label_ends(drawn: Sequence[Line], height: int) -> list[PlotlyPart]:
    """Labels each line at its last point. Labels that would overlap are moved apart."""
    known = [line for line in drawn if np.isfinite(line.y).any()]
    values = np.concatenate([line.y[np.isfinite(line.y)] for line in known]) if known else np.zeros(1)
    pixels = (height - 80) / (float(np.ptp(values)) or 1.0)
    labels: list[PlotlyPart] = []
    reached = -np.inf
    for line in sorted(known, key=lambda one: float(thin(one.x, one.y)[1][-1])):
        x, y = (float(column[-1]) for column in thin(line.x, line.y))
        label: PlotlyPart = {"text": line.label, "font": {"color": f"{line.colour}-text"}, "showarrow": False}
        if not line.continued:
            reached = max(y * pixels, reached + LABEL_PIXELS)
            labels.append(label | {"x": x, "y": y, "xanchor": "left", "xshift": 6, "yshift": reached - y * pixels})
        elif line.y[0] > line.y[-1]:
            labels.append(label | {"x": float(line.x[0]), "y": float(line.y[0]), "xanchor": "left", "xshift": 8})
        else:
            labels.append(label | {"x": x, "y": y, "xanchor": "right", "yshift": LABEL_PIXELS})
    return labels


def _label_mark(x: float, text: str) -> PlotlyPart:
    common: PlotlyPart = {
        "yref": "paper",
        "y": 1.0,
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": "--muted"},
    }
    return common | {"x": x, "text": text}


def _draw_mark(x: float) -> PlotlyPart:
    line = {"color": "--muted", "width": 1, "dash": "dot"}
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _tabulate(drawn: Sequence[Line], x_title: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns heads and a dozen rows: an x of the first line, and the value of every line there."""
    first = drawn[0].x
    rows = []
    for place in pick_evenly(len(first), TABLE_ROWS):
        x = float(first[place])
        rows.append((f"{x:,.0f}" if x == round(x) else number(x), *(_value_near(line, x) for line in drawn)))
    return (x_title, *(line.label for line in drawn)), rows


def _value_near(line: Line, x: float) -> str:
    if not len(line.x) or x < line.x[0] or x > line.x[-1]:
        return "-"
    value = float(line.y[int(np.abs(line.x - x).argmin())])
    return precise(value) if np.isfinite(value) else "-"


def draw_stacked_bars(
    name: str,
    title: str,
    description: str,
    labels: Sequence[str],
    parts: Mapping[str, tuple[Sequence[float], str]],
    x_title: str,
    unit: Callable[[float], str] = number,
) -> Chart:
    """Draws horizontal bars of parts: {part: (value per bar, colour)}. A part that is too small for its name has none."""
    data: list[PlotlyPart] = [
        {
            "type": "bar",
            "orientation": "h",
            "x": _round(values),
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
    layout: PlotlyPart = {
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
    return Chart(name, title, description, {"data": data, "layout": layout}, ("", *parts), rows, height, legend)


def draw_bars(
    name: str,
    title: str,
    description: str,
    labels: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    x_title: str,
    colours: Sequence[str] | str = "--blue",
) -> Chart:
    """Draws horizontal bars with the value of each at its end."""
    bar: PlotlyPart = {
        "type": "bar",
        "orientation": "h",
        "x": _round(values),
        "y": list(labels),
        "text": list(texts),
        "textposition": "outside",
        "textangle": 0,
        "cliponaxis": False,
        "marker": {"color": colours if isinstance(colours, str) else list(colours)},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    layout: PlotlyPart = {
        "xaxis": {"title": {"text": x_title}, "range": [0, 1.3 * max([*values, 0.0]) or 1.0]},
        "yaxis": {"autorange": "reversed", "type": "category", "dtick": 1},
        "bargap": 0.4,
        "margin": {"t": 8},
    }
    rows = list(zip(labels, texts, strict=True))
    return Chart(
        name, title, description, {"data": [bar], "layout": layout}, ("", x_title), rows, 80 + 34 * len(labels)
    )


def draw_columns(
    name: str,
    title: str,
    description: str,
    labels: Sequence[str],
    groups: Mapping[str, tuple[Sequence[float], str]],
    x_title: str,
    y_title: str,
) -> Chart:
    """Draws vertical bars side by side: {group: (value per label, colour)}."""
    data: list[PlotlyPart] = [
        {
            "type": "bar",
            "x": list(labels),
            "y": _round(values),
            "name": group,
            "marker": {"color": colour},
            "hovertemplate": f"%{{x}}: %{{y:,}}<extra>{group}</extra>",
            "showlegend": False,
        }
        for group, (values, colour) in groups.items()
    ]
    layout: PlotlyPart = {
        "xaxis": {"title": {"text": x_title}, "type": "category"},
        "yaxis": {"title": {"text": y_title}, "rangemode": "tozero", "tickformat": "~s"},
        "bargap": 0.15,
        "margin": {"t": 8},
    }
    rows = [(label, *(number(values[i]) for values, _ in groups.values())) for i, label in enumerate(labels)]
    legend = tuple((group, colour) for group, (_, colour) in groups.items()) if len(groups) > 1 else ()
    return Chart(name, title, description, {"data": data, "layout": layout}, (x_title, *groups), rows, 280, legend)


def draw_histogram(
    name: str,
    title: str,
    description: str,
    values: Column,
    marks: Sequence[tuple[float, str]],
    x_title: str,
    y_title: str,
) -> Chart:
    """Draws a histogram up to the 99th percentile; `marks` are vertical lines with a label each."""
    top = max(float(np.quantile(values, 0.99)), *(x for x, _ in marks))
    shown = values[values <= top]
    low, high = float(shown.min()), float(shown.max())
    if high - low <= 1e-9 * abs(high):  # equal but for rounding: too narrow to divide
        low, high = low - 0.5, high + 0.5
    counts, edges = np.histogram(shown, min(60, max(8, int(2 * np.sqrt(len(shown))))), (low, high))
    bar: PlotlyPart = {
        "type": "bar",
        "x": _round((edges[:-1] + edges[1:]) / 2),
        "y": counts.tolist(),
        "width": 0.92 * float(edges[1] - edges[0]),
        "marker": {"color": "--sky"},
        "hovertemplate": "%{y} at %{x:.4~g}<extra></extra>",
        "showlegend": False,
    }
    middle = float(edges[0] + edges[-1]) / 2
    labels = [
        _label_mark(x, text) | {"xanchor": "right" if x > middle else "left", "yshift": LABEL_PIXELS * (place % 2)}
        for place, (x, text) in enumerate(sorted(marks))
    ]
    layout: PlotlyPart = {
        "xaxis": {"title": {"text": x_title}},
        "yaxis": {"title": {"text": y_title}, "rangemode": "tozero"},
        "annotations": labels,
        "shapes": [_draw_mark(x) for x, _ in marks],
        "margin": {"t": 44},
    }
    bins = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    rows = [(f"{precise(low)} to {precise(high)}", str(count)) for low, high, count in bins if count]
    return Chart(name, title, description, {"data": [bar], "layout": layout}, (x_title, y_title), rows)


def draw_scatter(
    name: str,
    title: str,
    description: str,
    x: Column,
    y: Column,
    x_title: str,
    y_title: str,
    straight: tuple[float, float] | None = None,
    label: str = "",
) -> Chart:
    """Draws a scatter plot; `straight` is (start, slope) of a line through it."""
    if len(x) > MOST_DOTS:
        chosen = np.random.default_rng(0).choice(len(x), MOST_DOTS, replace=False)
        x, y = x[chosen], y[chosen]
    cloud: PlotlyPart = {
        "type": "scatter",
        "x": _round(x),
        "y": _round(y),
        "mode": "markers",
        "marker": {"color": "--blue/0.45", "size": 6},
        "hovertemplate": "%{x:.3~g}, %{y:.4~g}<extra></extra>",
        "showlegend": False,
    }
    data, notes = [cloud], list[PlotlyPart]()
    if straight is not None:
        ends = np.array([x.min(), x.max()])
        data.append(_draw_line(Line(label, ends, straight[0] + straight[1] * ends, "--vermilion", "dash")))
        corner: PlotlyPart = {
            "xref": "paper",
            "yref": "paper",
            "x": 0.02,
            "y": 0.98,
            "xanchor": "left",
            "yanchor": "top",
        }
        notes.append(corner | {"text": label, "showarrow": False, "font": {"color": "--vermilion-text"}})
    layout: PlotlyPart = {
        "xaxis": {"title": {"text": x_title}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": y_title}, "rangemode": "tozero"},
        "annotations": notes,
    }
    order = np.argsort(x)
    places = [int(order[place]) for place in pick_evenly(len(x), TABLE_ROWS)]
    rows = [(number(float(x[place])), precise(float(y[place]))) for place in places]
    return Chart(name, title, description, {"data": data, "layout": layout}, (x_title, y_title), rows)
