"""What an answer is made of: words, figures that name their measurement, and charts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Tone = Literal["good", "mind", "plain", "unknown"]
"""How the short answer is to be taken: well, with care, as a plain fact, or as not known yet."""
NOT_MEASURED = "not measured"
TOO_EARLY = "too early to say"


@dataclass(frozen=True)
class Figure:
    """A figure, and how it was measured."""

    name: str
    text: str
    measured: str
    value: Any = None  # as a plain number in base units, for programs


@dataclass(frozen=True)
class Chart:
    """A drawing, the sentence that says the same, and its figures as a table."""

    name: str  # unique in a report, in letters and dashes
    title: str
    says: str
    figure: dict[str, Any]  # plotly's data and layout; colours are names of the style sheet's variables
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    height: int = 300
    legend: tuple[tuple[str, str], ...] = ()  # names and colours, where they are not written beside what they name


@dataclass(frozen=True)
class Answer:
    """One of the eleven questions with its answer."""

    number: int
    question: str
    short: str
    text: str
    tone: Tone = "plain"
    figures: list[Figure] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        figures = [
            {"name": figure.name, "value": _finite(figure.value), "text": figure.text, "measured": figure.measured}
            for figure in self.figures
        ]
        return {"number": self.number, "question": self.question, "short": self.short} | {
            "answer": self.text,
            "figures": figures,
        }


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def told(name: str, value: float, unit: Callable[[float], str], measured: str) -> Figure:
    """A figure that is a number, written as its unit wants it."""
    return Figure(name, unit(value), measured, value)


def missing(name: str, why: str) -> Figure:
    return Figure(name, NOT_MEASURED, why)
