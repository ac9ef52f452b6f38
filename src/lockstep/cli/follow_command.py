"""`lockstep runs follow`."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from lockstep.explain.reading.record import Record
    from lockstep.watch.follow import WorkerStatus

SILENT_SECONDS = 60.0
"""Of a run on other machines that has not said farewell: its lock may not be seen here. Workers sample every 5 seconds."""


def follow(
    run: Annotated[str, typer.Argument(help="A run folder; an address where it is trained on this machine.")],
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON at every look.")] = False,
) -> None:
    """Watch the workers of a run side by side: step numbers, loss, speed, waiting. Ends with the run.

    Any terminal that sees the run folder will do, beside whatever trains it. Without a terminal every look is a line of
    step numbers. Ctrl-C leaves; the training does not notice.
    """
    from rich.console import Console
    from rich.live import Live

    folder, console = _folder(run), Console()
    try:
        if as_json or not console.is_terminal:
            for found in _looks(folder, every, once):
                print(json.dumps(found) if as_json else _line(found), flush=True)
            return
        with Live(console=console, auto_refresh=False) as live:
            for found in _looks(folder, every, once):
                live.update(_table(found), refresh=True)
    except KeyboardInterrupt:
        return


def _folder(run: str) -> Path:
    """Where the journals of a run grow, as soon as there are some."""
    from lockstep.errors import LockstepError
    from lockstep.explain.reading.record import Record
    from lockstep.remote.place import is_remote, working_folder
    from lockstep.run.directory import RunDirectory

    folder = working_folder(run)
    if is_remote(run) and not folder.is_dir():
        raise LockstepError(
            f"{run} is not trained on this machine.",
            "Follow it where it trains; `lockstep report` and `lockstep runs` read it from anywhere.",
            code=2,
        )
    while RunDirectory(folder).busy() and not any((folder / "journal").glob("worker-*.jsonl")):
        time.sleep(0.2)  # it has just been started
    Record.open(folder)
    return folder


def _looks(folder: Path, every: float, once: bool) -> Iterator[dict[str, Any]]:
    """What is to be seen, again and again until the run is over."""
    from lockstep.explain.reading.record import Record
    from lockstep.watch.follow import Follower

    with Follower(folder / "journal") as follower:
        while True:
            record = Record(folder)  # read anew: a launch may have other workers and another goal than the one before
            hosts = record.hosts
            busy = record.run.busy()  # before the journals are read: farewells come before the lock is given back
            standings = follower.poll()[: len(hosts) or None]
            state = "running" if busy else _state(record, standings)
            workers = [
                standing.as_dict() | {"host": hosts[standing.worker] if standing.worker < len(hosts) else "?"}
                for standing in standings
            ]
            facts = {"run": str(folder), "state": state, "steps": record.setting("train.steps"), "unit": follower.unit}
            yield facts | {"workers": workers}
            if once or state != "running":
                return
            time.sleep(every)


def _state(record: "Record", standings: "list[WorkerStatus]") -> str:
    """Of a run that is not trained on this machine right now: `ended`, `cut off` (killed, so that nobody said farewell), or
    `running` elsewhere."""
    import socket

    if standings and standings[0].is_stopped:
        return "ended"
    elsewhere = set(record.hosts) - {socket.gethostname()}
    heard = max((standing.last_line_time or 0.0 for standing in standings), default=0.0)
    return "running" if elsewhere and time.time() - heard < SILENT_SECONDS else "cut off"


def _line(found: dict[str, Any]) -> str:
    """`worker 0: step 812   worker 1: step 811`"""
    parts = [f"worker {one['worker']}: {_step(one)}" for one in found["workers"]]
    state = "" if found["state"] == "running" else f"   {found['state']}"
    return f"{time.strftime('%H:%M:%S')}  {'   '.join(parts)}{state}"


def _step(one: dict[str, Any]) -> str:
    said = "" if one["said"] == "trains" else f" ({one['said']})"
    return ("no step yet" if one["step"] is None else f"step {one['step']:,}") + said


def _table(found: dict[str, Any]) -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    steps = "" if found["steps"] is None else f" of {found['steps']:,} steps"
    title = f"{escape(found['run'])}{steps}, {found['state']}"
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    stale = any(one["staleness"] is not None for one in found["workers"])
    headings = ["worker", "host", "step", "loss", f"{found['unit']}/s", "merge", *["staleness"] * stale, "last said"]
    for heading in headings:
        left = heading in ("host", "last said")
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    for one in found["workers"]:
        age = "" if one["time"] is None else f", {max(0.0, time.time() - one['time']):.0f} s ago"
        table.add_row(
            str(one["worker"]),
            escape(one["host"]),
            _shown(one["step"], ",d"),
            _shown(one["loss"], ".3f"),
            _shown(one["per_second"], ",.0f"),
            _shown(one["merge_share"], ".0%"),
            *[_shown(one["staleness"], "d")] * stale,
            f"{escape(one['said'])}{age}",
        )
    return table


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
