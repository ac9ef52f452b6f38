"""The Python interface: `lockstep.report` explains a run, as data."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.api_places import Place, name_place
from lockstep.errors import LockstepError

if TYPE_CHECKING:
    from lockstep.explain.answer import Figure
    from lockstep.explain.report import Report, ReportFacts

STYLE = "max-width:60em;line-height:1.5"
"""The style of a report in a notebook."""


@dataclass(frozen=True)
class ReportAnswer:
    """A question about a run and its answer. `answer["wall time"]` is the figure with this name."""

    name: str
    """How `report[name]` finds it, such as `duration`."""
    question: str
    short: str
    """The answer in a few words."""
    text: str
    """The answer in sentences."""
    figures: "tuple[Figure, ...]"
    """Each has a name, a text for people, a value in base units for programs, and how it was measured."""

    def __getitem__(self, name: str) -> "Figure":
        for figure in self.figures:
            if figure.name == name:
                return figure
        raise KeyError(f"{name!r} is not a figure of this answer: {', '.join(figure.name for figure in self.figures)}")

    def __repr__(self) -> str:
        return f"<{self.name}: {self.question} {self.short}>"


class RunReport:
    """The report of a run. `report["duration"]` is the answer with this name; iterating yields all answers in order."""

    def __init__(self, report: "Report", names: list[str]) -> None:
        self._report = report
        self.name: str = report.name
        self.verdict: list[str] = report.verdict
        """The report in a few sentences."""
        self.answers: list[ReportAnswer] = [
            ReportAnswer(name, answer.question, answer.short, answer.text, tuple(answer.figures))
            for name, answer in zip(names, report.answers, strict=True)
        ]
        self.advice: list[str] = [advice.what for advice in report.advice]
        """What to change, the most useful first."""

    def __getitem__(self, name: str) -> ReportAnswer:
        for answer in self.answers:
            if answer.name == name:
                return answer
        raise KeyError(f"{name!r} is not an answer: {', '.join(answer.name for answer in self.answers)}")

    def __iter__(self) -> Iterator[ReportAnswer]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def as_dict(self) -> "ReportFacts":
        """Returns everything that `lockstep report --json` prints."""
        return self._report.facts()

    def save(self, path: str | PathLike[str]) -> Path:
        """Writes the report as one HTML page that needs no network, and returns its path."""
        from lockstep.explain.report import render_page
        from lockstep.files import disk_error, write_atomically

        to = Path(path).expanduser()
        if to.is_dir():
            raise LockstepError(f"{to} is a folder.", f"Name a file, such as {to / 'report.html'}.", code=2)
        try:
            write_atomically(to, render_page(self._report))
        except OSError as error:
            raise disk_error(to, error, "choose another file") from None
        return to

    def __repr__(self) -> str:
        width = max(len(answer.name) for answer in self.answers)
        lines = [f"{answer.name:{width}}  {answer.short}" for answer in self.answers]
        return "\n".join([f"Report of {self.name}", *self.verdict, *lines])

    def _repr_html_(self) -> str:
        """Returns the answers as HTML without scripts and pictures, so that a notebook stays small."""
        verdict = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.verdict)
        answers = "".join(map(_render_answer, self.answers))
        return f'<div style="{STYLE}"><h3>{escape(self.name)}</h3>{verdict}{answers}</div>'


def _render_answer(answer: ReportAnswer) -> str:
    rows = "".join(
        f'<tr><td style="text-align:left">{escape(figure.name)}</td><td>{escape(figure.text)}</td>'
        f'<td style="text-align:left">{escape(figure.measured)}</td></tr>'
        for figure in answer.figures
    )
    table = f"<table><tr><th>figure</th><th>value</th><th>measured</th></tr>{rows}</table>" if rows else ""
    head = f"<summary>{escape(answer.question)} <b>{escape(answer.short)}</b></summary>"
    return f"<details>{head}<p>{escape(answer.text)}</p>{table}</details>"


def report(run: Place) -> RunReport:
    """Reads a run or its address, and answers what can be answered from it. Nothing is written. The run may be running,
    finished, stopped or killed."""
    from lockstep.explain.report import ANSWERS, make
    from lockstep.remote.place import is_remote

    place = name_place(run, "report")
    names = [answer.__module__.rpartition(".")[2] for answer in ANSWERS]
    if not is_remote(place):
        return RunReport(make(Path(place)), names)
    from lockstep.remote.fetch_run import fetch_run
    from lockstep.remote.lease import is_leased
    from lockstep.remote.store import Store

    folder = fetch_run(place, with_manifests=True)
    return RunReport(make(folder, place, running=is_leased(Store(place))), names)
