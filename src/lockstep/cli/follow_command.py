"""`lockstep runs follow`."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from lockstep.explain.reading.record import Record
    from lockstep.watch.follow import WorkerStatus

SILENT_SECONDS = 60.0
"""A run on other machines counts as running if a worker wrote to its journal in this time: its lock may not be visible
here. Workers write a sample every 5 seconds."""


FollowedWorker = TypedDict(  # noqa: UP013
    "FollowedWorker",
    {
        "worker": int,
        "step": int | None,
        "loss": float | None,
        "per_second": float | None,
        "merge_share": float | None,
        "staleness": int | None,
        "said": str,
        "time": float | None,
        "heard": float | None,
        "host": str,
    },
)
"""The last step of a worker and the last event in its journal, by the keys of `--json`."""


class FollowedRun(TypedDict):
    """The state of a run and its workers at one update."""

    run: str
    state: str
    steps: int | None
    unit: str
    workers: list[FollowedWorker]


def follow(
    run: Annotated[
        str, typer.Argument(help="A run folder; or the address of a run that is being trained on this machine.")
    ],
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two updates.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show the state once and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON at every update.")] = False,
) -> None:
    """Show the workers of a run side by side, live: step, loss, speed and time for the exchange.

    It works on every machine that has access to the run folder, and ends with the run. If the output is not a terminal,
    each update is one line of step numbers. Ctrl-C ends the display; the training continues.
    """
    from rich.live import Live

    from lockstep.cli.common import print_text
    from lockstep.safe_console import SafeConsole

    folder, console = _find_folder(run), SafeConsole()
    try:
        if as_json or not console.is_terminal:
            for snapshot in _take_snapshots(folder, every, once):
                print_text(json.dumps(snapshot) if as_json else _line(snapshot), flush=True)
            return
        with Live(console=console, auto_refresh=False) as live:
            for snapshot in _take_snapshots(folder, every, once):
                live.update(_table(snapshot), refresh=True)
    except KeyboardInterrupt:
        return


def _find_folder(run: str) -> Path:
    """The local folder of a run. Waits for the first journal of a run that is just starting."""
    from lockstep.errors import LockstepError
    from lockstep.explain.reading.record import Record
    from lockstep.remote.place import is_remote, working_folder
    from lockstep.run.directory import RunDirectory

    folder = working_folder(run)
    if is_remote(run) and not folder.is_dir():
        raise LockstepError(
            f"{run} is not trained on this machine.",
            "Follow it on the machine that trains it. `lockstep report` and `lockstep runs` work everywhere.",
            code=2,
        )
    while RunDirectory(folder).busy() and not any((folder / "journal").glob("worker-*.jsonl")):
        time.sleep(0.2)
    Record.open(folder)
    return folder


def _take_snapshots(folder: Path, every: float, once: bool) -> Iterator[FollowedRun]:
    """Yields the state of the run and its workers until the run is over."""
    from lockstep.explain.reading.record import Record
    from lockstep.watch.follow import Follower

    with Follower(folder / "journal") as follower:
        while True:
            record = Record(folder)  # read again: a new launch may have other workers and another number of steps
            hosts = record.hosts
            is_busy = record.run.busy()  # before the journals are read: a worker writes `stop` before it unlocks
            standings = follower.poll()[: len(hosts) or None]
            state = "running" if is_busy else _state(record, standings)
            steps = record.setting("train.steps")
            yield {
                "run": str(folder),
                "state": state,
                "steps": steps if isinstance(steps, int) else None,
                "unit": follower.unit,
                "workers": [_describe_worker(standing, hosts) for standing in standings],
            }
            if once or state != "running":
                return
            time.sleep(every)


def _describe_worker(standing: "WorkerStatus", hosts: list[str]) -> FollowedWorker:
    host = hosts[standing.worker] if standing.worker < len(hosts) else "?"
    return {
        "worker": standing.worker,
        "step": standing.step,
        "loss": standing.loss,
        "per_second": standing.per_second,
        "merge_share": standing.merge_share,
        "staleness": standing.staleness,
        "said": standing.event,
        "time": standing.event_time,
        "heard": standing.last_line_time,
        "host": host,
    }


def _state(record: "Record", standings: "list[WorkerStatus]") -> str:
    """The state of a run that is not being trained on this machine: `ended`, `running` on another machine, or `cut off`
    (killed, so that no worker could write that it stopped)."""
    import socket

    if standings and standings[0].is_stopped:
        return "ended"
    elsewhere = set(record.hosts) - {socket.gethostname()}
    last_written = max((standing.last_line_time or 0.0 for standing in standings), default=0.0)
    return "running" if elsewhere and time.time() - last_written < SILENT_SECONDS else "cut off"


def _line(snapshot: FollowedRun) -> str:
    """`worker 0: step 812   worker 1: step 811`"""
    parts = [f"worker {one['worker']}: {_step(one)}" for one in snapshot["workers"]]
    state = "" if snapshot["state"] == "running" else f"   {snapshot['state']}"
    return f"{time.strftime('%H:%M:%S')}  {'   '.join(parts)}{state}"


def _step(one: FollowedWorker) -> str:
    event = "" if one["said"] == "trains" else f" ({one['said']})"
    return ("no step yet" if one["step"] is None else f"step {one['step']:,}") + event


def _table(snapshot: FollowedRun) -> "Table":
    from rich import box
    from rich.table import Table

    steps = "" if snapshot["steps"] is None else f" of {snapshot['steps']:,} steps"
    title = f"{snapshot['run']}{steps}, {snapshot['state']}"
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    is_asynchronous = any(one["staleness"] is not None for one in snapshot["workers"])
    headings = [
        "worker",
        "host",
        "step",
        "loss",
        f"{snapshot['unit']}/s",
        "merge",
        *["staleness"] * is_asynchronous,
        "last event",
    ]
    for heading in headings:
        left = heading in ("host", "last event")
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    for one in snapshot["workers"]:
        age = "" if one["time"] is None else f", {max(0.0, time.time() - one['time']):.0f} s ago"
        table.add_row(
            str(one["worker"]),
            one["host"],
            _format(one["step"], ",d"),
            _format(one["loss"], ".3f"),
            _format(one["per_second"], ",.0f"),
            _format(one["merge_share"], ".0%"),
            *[_format(one["staleness"], "d")] * is_asynchronous,
            one["said"] + age,
        )
    return table


def _format(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
