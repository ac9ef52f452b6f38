"""`lockstep runs`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.cli.audit_command import audit
from lockstep.cli.compare_command import compare
from lockstep.cli.follow_command import follow
from lockstep.cli.group import DefaultGroup

if TYPE_CHECKING:
    from lockstep.explain.summary import Summary


class _ListFirst(DefaultGroup):
    """`lockstep runs FOLDER` is short for `lockstep runs list FOLDER`."""

    default = "list"


app = typer.Typer(
    help="List runs (`lockstep runs FOLDER`), compare runs, follow one, or audit its use of the data.", cls=_ListFirst
)
app.command()(compare)
app.command()(follow)
app.command()(audit)


@app.command("list")
def list_runs(
    folder: Annotated[str, typer.Argument(help="The folder or address that contains the runs.")] = "runs",
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the runs in a folder: state, step, best score and speed."""
    from rich import box
    from rich.table import Table

    from lockstep.cli.common import fold, print_json
    from lockstep.remote.place import is_remote
    from lockstep.safe_console import SafeConsole

    summaries = _summarise_remote(folder) if is_remote(folder) else _summarise_local(Path(folder))
    if as_json:
        print_json([summary.as_dict() for summary in summaries])
        return
    console = SafeConsole()
    facts = ("state", "step", "best score", "per second", "workers")
    rows = [_list_facts(summary) for summary in summaries]
    width = console.width - sum(max(map(len, column)) + 3 for column in zip(facts, *rows, strict=True)) - 4
    table = Table(box=box.SIMPLE)
    table.add_column("run", overflow="fold")
    for heading in facts:
        table.add_column(heading, justify="left" if heading == "state" else "right", no_wrap=True)
    for summary, row in zip(summaries, rows, strict=True):
        table.add_row(fold(summary.run, width), *row)
    console.print(table if summaries else f"There are no runs in {folder}.")


def _list_facts(summary: "Summary") -> list[str]:
    """The state, step, best score, speed and number of workers of a run."""
    score = "-" if summary.best_score is None else f"{summary.best_score:.2f} at {summary.best_step:,}"
    unit = summary.unit.removeprefix("target ")
    speed = "-" if summary.words_per_second is None else f"{summary.words_per_second:,.0f} {unit}"
    return [summary.state, f"{summary.step:,}", score, speed, f"{summary.workers}"]


def _summarise_local(folder: Path) -> "list[Summary]":
    from lockstep.errors import LockstepError
    from lockstep.explain.summary import summarise

    if not folder.is_dir():
        raise LockstepError(
            f"There is no folder {folder}.",
            "Give the folder that contains your runs; `lockstep train` writes to runs/ by default.",
            code=2,
        )
    configs = sorted(folder.glob("**/config.yaml"))
    return [summarise(path.parent) for path in configs if (path.parent / "journal").is_dir()]


def _summarise_remote(url: str) -> "list[Summary]":
    """Summarises remote runs. A run whose lease is valid is running."""
    from dataclasses import replace

    from lockstep.explain.summary import summarise
    from lockstep.remote.fetch_run import fetch_run, list_run_names
    from lockstep.remote.lease import is_leased
    from lockstep.remote.store import Store

    summaries = []
    for name in list_run_names(Store(url)):
        run = f"{url.rstrip('/')}/{name}".rstrip("/")
        summary = summarise(fetch_run(run))
        summaries.append(replace(summary, run=run, state="running" if is_leased(Store(run)) else summary.state))
    return summaries
