"""What an answer consists of: words, figures with their measurement, and charts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

Tone = Literal["good", "mind", "plain", "unknown"]
"""The colour of the short answer: good news, a warning, a plain fact, or not known yet."""
NOT_MEASURED = "not measured"
TOO_EARLY = "too early to say"


PlotlyPart = dict[str, Any]
"""A trace, an axis or another part of a plotly figure, as plotly's reference describes it."""


class PlotlyFigure(TypedDict):
    """Colours are names of the style sheet's variables."""

    data: list[PlotlyPart]
    layout: PlotlyPart


class FigureFacts(TypedDict):
    """A figure in the JSON of a report."""

    name: str
    value: float | None
    text: str
    measured: str


class AnswerFacts(TypedDict):
    """An answer in the JSON of a report."""

    number: int
    question: str
    short: str
    answer: str
    figures: list[FigureFacts]


@dataclass(frozen=True)
class Figure:
    """A figure, and how it was measured."""

    name: str
    text: str
    measured: str
    value: float | None = None  # in base units, for programs

    def facts(self) -> FigureFacts:
        value = self.value if self.value is None or math.isfinite(self.value) else None  # JSON has no NaN
        return {"name": self.name, "value": value, "text": self.text, "measured": self.measured}


@dataclass(frozen=True)
class Chart:
    """A drawing, a sentence with the same content, and the figures as a table."""

    name: str  # unique in a report, in letters and dashes
    title: str
    description: str
    figure: PlotlyFigure
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    height: int = 300
    legend: tuple[tuple[str, str], ...] = ()  # names and colours, where the drawing itself has no labels


@dataclass(frozen=True)
class Answer:
    """A question of the report with its answer."""

    question: str
    short: str
    text: str
    tone: Tone = "plain"
    figures: list[Figure] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)

    def facts(self, number: int) -> AnswerFacts:
        """Returns the answer for programs. `number` is the place of the question in the report, from 1 on."""
        return {
            "number": number,
            "question": self.question,
            "short": self.short,
            "answer": self.text,
            "figures": [figure.facts() for figure in self.figures],
        }


def make_figure(name: str, value: float, format_value: Callable[[float], str], measured: str) -> Figure:
    return Figure(name, format_value(value), measured, value)


def make_missing_figure(name: str, reason: str) -> Figure:
    return Figure(name, NOT_MEASURED, reason)
