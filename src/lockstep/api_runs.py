"""The Python interface: `lockstep.runs` lists runs as objects."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path

from lockstep.api_places import Place, name_place

HEADINGS = ("run", "state", "step", "best score", "speed", "workers", "started")
NUMBERS = {"step", "best score", "speed", "workers"}
"""Columns that are aligned at the right."""
UNKNOWN = "-"


@dataclass(frozen=True)
class Run:
    """The figures of a run that `lockstep runs` prints. What was not measured is None."""

    name: str
    """The shortest end of its path that is unique among the runs of the list."""
    path: str
    """Its folder or address, for `lockstep.load` and `lockstep.report`."""
    state: str
    """running, finished, stopped (by a signal, after saving) or cut off (killed)."""
    step: int
    metric: str
    """The name of the score, such as sacrebleu or accuracy."""
    best_score: float | None
    best_step: int | None
    signature: str
    """The signature of the sacreBLEU score."""
    loss: float | None
    """The training loss at the last step, per target word or image."""
    words_per_second: float | None
    """Of all workers; target words or images, as `unit` says."""
    unit: str
    workers: int
    strategy: str
    launches: int
    started: datetime | None
    """The begin of the first launch, in local time."""
    ended: datetime | None
    """When the last launch stopped."""


class Runs(list[Run]):
    """Runs, in the order of their paths. It shows itself as a table: as text, and as HTML in a notebook."""

    def __repr__(self) -> str:
        if not self:
            return "no runs"
        rows = [HEADINGS, *self._list_rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        aligned = (
            "  ".join(
                cell.rjust(width) if heading in NUMBERS else cell.ljust(width)
                for cell, width, heading in zip(row, widths, HEADINGS, strict=True)
            )
            for row in rows
        )
        return "\n".join(line.rstrip() for line in aligned)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
        rows = (
            "".join(
                f'<td style="text-align:{"right" if heading in NUMBERS else "left"}">{escape(cell)}</td>'
                for cell, heading in zip(row, HEADINGS, strict=True)
            )
            for row in self._list_rows()
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _list_rows(self) -> Iterator[tuple[str, ...]]:
        for run in self:
            score, speed = UNKNOWN, UNKNOWN
            if run.best_score is not None and run.best_step is not None:
                score = f"{run.metric} {run.best_score:.2f} at {run.best_step:,}"
            if run.words_per_second is not None:
                speed = f"{run.words_per_second:,.0f} {run.unit}/s"
            started = UNKNOWN if run.started is None else f"{run.started:%Y-%m-%d %H:%M}"
            yield run.name, run.state, f"{run.step:,}", score, speed, f"{run.workers}", started


def runs(folder: Place = "runs") -> Runs:
    """Lists the runs in a folder or at an address, and in the folders below it."""
    from lockstep.cli.find_runs import name_runs
    from lockstep.remote.place import is_remote

    place = name_place(folder, "runs")
    if is_remote(place):
        return Runs(_read_remote(name, url) for name, url in name_runs([place]).items())
    if Path(place).is_dir() and not any(Path(place).glob("**/journal/")):
        return Runs()
    return Runs(_read(name, path, Path(path)) for name, path in name_runs([place]).items())


def _read_remote(name: str, url: str) -> Run:
    """Reads a run at an address. It is running while its lease is valid."""
    from lockstep.remote.fetch_run import fetch_run
    from lockstep.remote.lease import is_leased
    from lockstep.remote.store import Store

    return _read(name, url, fetch_run(url), running=is_leased(Store(url)))


def _read(name: str, path: str, folder: Path, running: bool | None = None) -> Run:
    """Reads the run in a folder, which is a copy if its `path` is an address."""
    from lockstep.explain.reading.record import Record
    from lockstep.explain.summary import summarise_record

    record = Record(folder, running)
    summary, launches = summarise_record(record), record.launches
    return Run(
        name=name,
        path=path,
        state=summary.state,
        step=summary.step,
        metric=summary.metric,
        best_score=summary.best_score,
        best_step=summary.best_step,
        signature=summary.signature,
        loss=summary.loss,
        words_per_second=summary.words_per_second,
        unit=summary.unit,
        workers=summary.workers,
        strategy=summary.way,
        launches=summary.launches,
        started=datetime.fromtimestamp(launches[0].begin) if launches else None,
        ended=None if summary.ended is None else datetime.fromtimestamp(summary.ended),
    )
