"""`lockstep runs`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.cli.compare_command import compare
from lockstep.cli.follow_command import follow
from lockstep.cli.group import DefaultGroup

if TYPE_CHECKING:
    from lockstep.explain.summary import Summary


class _ListFirst(DefaultGroup):
    """`lockstep runs FOLDER` lists without being told to."""

    default = "list"


app = typer.Typer(help="List runs (`lockstep runs FOLDER`), compare some, or follow one.", cls=_ListFirst)
app.command()(compare)
app.command()(follow)


@app.command("list")
def list_runs(
    folder: Annotated[str, typer.Argument(help="The folder or address that holds runs.")] = "runs",
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the runs in a folder: state, step, best score, speed."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from lockstep.cli.common import print_json
    from lockstep.remote.place import is_remote

    found = _at_address(folder) if is_remote(folder) else _in_folder(Path(folder))
    if as_json:
        print_json([summary.as_dict() for summary in found])
        return
    table = Table(box=box.SIMPLE)
    for heading in ("run", "state", "step", "best score", "at step", "per second", "workers"):
        table.add_column(heading, justify="left" if heading in ("run", "state") else "right", overflow="fold")
    for summary in found:
        score = "-" if summary.best_score is None else f"{summary.best_score:.2f}"
        speed = "-" if summary.words_per_second is None else f"{summary.words_per_second:,.0f}"
        speed += "" if summary.words_per_second is None else f" {summary.unit.removeprefix('target ')}"
        at = "-" if summary.best_step is None else f"{summary.best_step:,}"
        table.add_row(escape(summary.run), summary.state, f"{summary.step:,}", score, at, speed, str(summary.workers))
    Console().print(table if found else f"No runs in {folder}.")


def _in_folder(folder: Path) -> "list[Summary]":
    from lockstep.errors import LockstepError
    from lockstep.explain.summary import summarise

    if not folder.is_dir():
        raise LockstepError(f"There is no folder {folder}.", "Name the folder that holds your runs.", code=2)
    configs = sorted(folder.glob("**/config.yaml"))
    return [summarise(path.parent) for path in configs if (path.parent / "journal").is_dir()]


def _at_address(url: str) -> "list[Summary]":
    """A remote run is running when its lease says so."""
    from dataclasses import replace

    from lockstep.explain.summary import summarise
    from lockstep.remote.fetch_run import fetch_run, list_run_names
    from lockstep.remote.lease import is_leased
    from lockstep.remote.store import Store

    found = []
    for name in list_run_names(Store(url)):
        run = f"{url.rstrip('/')}/{name}".rstrip("/")
        summary = summarise(fetch_run(run))
        found.append(replace(summary, run=run, state="running" if is_leased(Store(run)) else summary.state))
    return found
