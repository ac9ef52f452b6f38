"""Renders the evaluation of one or two models on a text as one page that needs no network."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Protocol

from lockstep.explain.answer import Chart, PlotlyPart
from lockstep.explain.pages.charts import draw_columns
from lockstep.explain.pages.html_page import render

COLOURS = ("--blue", "--vermilion")
"""Of the first and the second model, and of the first and the second score of a single model."""


@dataclass(frozen=True)
class DrawnScore:
    """A score of each model, with its 95 % interval if it is known."""

    title: str
    values: list[float]
    intervals: list[tuple[float, float] | None]
    signature: str
    note: str = ""


class DrawnLength(Protocol):
    """The scores of the sentences whose source length is in this range."""

    @property
    def words(self) -> str: ...
    @property
    def sentences(self) -> int: ...
    @property
    def sacrebleu(self) -> float: ...
    @property
    def chrf(self) -> float: ...
    @property
    def length_ratio(self) -> float: ...


class DrawnSentence(Protocol):
    """A sentence, its translation by each model, and their chrF."""

    @property
    def line(self) -> int: ...
    @property
    def source(self) -> str: ...
    @property
    def reference(self) -> str: ...
    @property
    def translations(self) -> Sequence[str]: ...
    @property
    def chrf(self) -> Sequence[float]: ...


@dataclass(frozen=True)
class EvaluationView:
    """What the page shows. Lists with one entry for each model are in the order of `models`."""

    models: list[str]
    text: str
    sentences: int
    verdict: list[str]
    scores: list[DrawnScore]
    by_length: Sequence[Sequence[DrawnLength]]
    worst: Sequence[DrawnSentence]
    most_different: Sequence[DrawnSentence]
    details: list[tuple[str, ...]]  # a name, and its value for each model
    notes: list[str]


@dataclass(frozen=True)
class MarkedWords:
    """Words in a row. They are marked if the other text does not have them there."""

    text: str
    is_marked: bool


@dataclass(frozen=True)
class MarkedSentence:
    """A sentence as the page shows it. The words that are marked are not in the reference; in the reference of a single
    model, those that its translation lacks."""

    line: int
    source: str
    reference: list[MarkedWords]
    translations: list[tuple[str, float, list[MarkedWords]]]  # the name of the model, chrF, words


def render_evaluation(view: EvaluationView) -> str:
    labels = ["translation"] if len(view.models) == 1 else ["first", "second"]
    score_charts, length_charts = _draw_scores(view), _draw_lengths(view)
    sections = [
        ("different", "Where they differ most", view.most_different),
        ("worst", "Worst sentences", view.worst),
    ]
    return render(
        "evaluation.html.j2",
        [*score_charts, *length_charts],
        view=view,
        labels=labels,
        colours=COLOURS,
        score_charts=score_charts,
        length_charts=length_charts,
        length_heads=_list_length_heads(len(view.models)),
        length_rows=_list_length_rows(view.by_length),
        sections=[
            (name, title, [mark_sentence(one, labels) for one in rows]) for name, title, rows in sections if rows
        ],
    )


def mark_sentence(sentence: DrawnSentence, labels: Sequence[str]) -> MarkedSentence:
    """Marks the words in which translations and reference differ."""
    marked = [mark_differences(text, sentence.reference) for text in sentence.translations]
    reference = mark_differences(sentence.reference, *sentence.translations)
    named = list(zip(labels, sentence.chrf, marked, strict=True))
    return MarkedSentence(sentence.line, sentence.source, reference, named)


def mark_differences(text: str, *others: str) -> list[MarkedWords]:
    """Returns the words of a text. Those that none of the others has at this place are marked."""
    words = text.split()
    is_shared = [False] * len(words)
    for other in others:
        for block in SequenceMatcher(None, words, other.split(), autojunk=False).get_matching_blocks():
            is_shared[block.a : block.a + block.size] = [True] * block.size
    runs: list[tuple[list[str], bool]] = []
    for word, shared in zip(words, is_shared, strict=True):
        if not runs or runs[-1][1] == shared:
            runs.append(([], not shared))
        runs[-1][0].append(word)
    return [MarkedWords(" ".join(run), is_marked) for run, is_marked in runs]


def _draw_scores(view: EvaluationView) -> list[Chart]:
    """Draws the scores of one model in one chart, and each score of two models in a chart of its own."""
    if len(view.models) == 1:
        rows = [(one.title, one.values[0], one.intervals[0]) for one in view.scores]
        return [_draw_intervals("scores", "Scores with their 95 % intervals", rows, "score, 0 to 100", COLOURS[:1])]
    return [
        _draw_intervals(
            f"score-{number}",
            f"{one.title} with its 95 % interval",
            list(zip(("first", "second"), one.values, one.intervals, strict=True)),
            one.title,
            COLOURS,
        )
        for number, one in enumerate(view.scores)
    ]


def _draw_intervals(
    name: str,
    title: str,
    rows: Sequence[tuple[str, float, tuple[float, float] | None]],
    x_title: str,
    colours: Sequence[str],
) -> Chart:
    """Draws a dot for each value and a line for its interval. Each row has the next colour, or all the only one."""
    data: list[PlotlyPart] = []
    for place, (label, value, interval) in enumerate(rows):
        low, high = interval or (value, value)
        colour = colours[place % len(colours)]
        data.append(
            {
                "type": "scatter",
                "x": [value],
                "y": [label],
                "mode": "markers+text",
                "text": [f"{value:.2f}"],
                "textposition": "top center",
                "marker": {"color": colour, "size": 11},
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [max(0.0, high - value)],
                    "arrayminus": [max(0.0, value - low)],
                    "color": colour,
                    "thickness": 3,
                    "width": 7,
                },
                "hovertemplate": f"{_describe_score(label, value, interval)}<extra></extra>",
                "showlegend": False,
            }
        )
    layout: PlotlyPart = {
        "xaxis": {"title": {"text": x_title}},
        "yaxis": {"type": "category", "range": [len(rows) - 0.5, -0.5], "dtick": 1},
        "margin": {"t": 8},
    }
    description = " ".join(_describe_score(*row) for row in rows)
    table = [(label, f"{value:.2f}", _format_interval(interval)) for label, value, interval in rows]
    heads = ("", "score", "95 % interval")
    return Chart(name, title, description, {"data": data, "layout": layout}, heads, table, 80 + 48 * len(rows))


def _describe_score(label: str, value: float, interval: tuple[float, float] | None) -> str:
    return f"{label}: {value:.2f}" + (f" ({_format_interval(interval)})." if interval else ".")


def _format_interval(interval: tuple[float, float] | None) -> str:
    return "not computed" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def _draw_lengths(view: EvaluationView) -> list[Chart]:
    """Draws the scores by the length of the source: one chart for one model, one for each score of two models."""
    labels = [row.words for row in view.by_length[0]]
    bleu = [[row.sacrebleu for row in rows] for rows in view.by_length]
    chrf = [[row.chrf for row in rows] for rows in view.by_length]
    if len(view.models) == 1:
        groups = {"sacreBLEU": (bleu[0], COLOURS[0]), "chrF": (chrf[0], COLOURS[1])}
        title = "Scores by the length of the source"
        description = f"sacreBLEU and chrF of {len(labels)} groups of sentences."
        return [draw_columns("lengths", title, description, labels, groups, "words of the source", "score")]
    return [
        draw_columns(
            name,
            f"{title} by the length of the source",
            f"{title} of both models for {len(labels)} groups of sentences.",
            labels,
            {"first": (values[0], COLOURS[0]), "second": (values[1], COLOURS[1])},
            "words of the source",
            title,
        )
        for name, title, values in (("lengths-bleu", "sacreBLEU", bleu), ("lengths-chrf", "chrF", chrf))
    ]


def _list_length_heads(models: int) -> list[str]:
    names = ["BLEU", "chrF", "ratio"]
    if models == 1:
        return ["words", "sentences", *names]
    return ["words", "sentences", *(f"{name}, {which}" for which in ("first", "second") for name in names)]


def _list_length_rows(by_length: Sequence[Sequence[DrawnLength]]) -> list[list[str]]:
    return [
        [
            rows[0].words,
            f"{rows[0].sentences:,}",
            *(text for row in rows for text in (f"{row.sacrebleu:.2f}", f"{row.chrf:.2f}", f"{row.length_ratio:.3f}")),
        ]
        for rows in zip(*by_length, strict=True)
    ]
