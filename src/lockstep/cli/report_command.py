"""`lockstep report`."""

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.notices import warn

if TYPE_CHECKING:
    from lockstep.explain.report import Report


def report(
    run: Annotated[str, typer.Argument(help="A run folder or address.")],
    to: Annotated[
        Path | None, typer.Option(help="Folder to write to, made if it is missing; default: the run folder.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Update the report until the run ends.")] = False,
    every: Annotated[int, typer.Option(min=1, help="Seconds between two updates with --live.")] = 5,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all answers of the report as JSON.")] = False,
) -> None:
    """Explain a run: wall time, training, overfitting, utilisation, network, files, and what to change.

    Writes `report.html` (one file that needs no network) and `report.md`. The run may be running, finished, stopped or
    killed.
    """
    from lockstep.cli.common import print_json, print_text

    if live:
        made, page = _report_live(run, to, every, open_page and not as_json)
    else:
        made, page = write_report(run, to)
        if open_page:
            _open(page)
    if as_json:
        print_json(made.facts() | {"html": str(page), "markdown": str(page.with_suffix(".md"))})
        return
    for sentence in made.verdict:
        print_text(sentence)
    print_text(f"Report: {page} (as text: {page.with_suffix('.md').name})")


def _make_folder(folder: Path) -> Path:
    from lockstep.errors import LockstepError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    except OSError as error:
        in_the_way = next((path for path in (folder, *folder.parents) if path.is_file()), None)
        reason = f"{in_the_way} is a file" if in_the_way else error.strerror
        raise LockstepError(f"The folder {folder} cannot be made: {reason}.", "Choose another --to.", code=2) from None


def write_report(run: str | Path, to: Path | None = None, refresh: int | None = None) -> "tuple[Report, Path]":
    """Reads a local or remote run and writes its report into the run or into `to`. Returns the report and its HTML page."""
    from lockstep.errors import LockstepError
    from lockstep.explain.report import make, write
    from lockstep.remote.place import is_remote

    if not is_remote(run):
        near = Path("runs") / run
        if not Path(run).exists() and near.is_dir():
            raise LockstepError(f"There is no run folder {run}.", f"Did you mean {near}?", code=2)
        made = make(Path(run))
        return made, write(made, _make_folder(to) if to else Path(run), refresh)[0]
    from lockstep.remote.fetch_run import fetch_run
    from lockstep.remote.lease import is_leased
    from lockstep.remote.store import Store

    store = Store(str(run))
    folder = fetch_run(str(run), with_manifests=True)
    made = make(folder, str(run), running=is_leased(store))
    files = write(made, _make_folder(to) if to else folder, refresh)
    for file in files if to is None else ():
        store.send(file, file.name)
    return made, files[0]


def write_closing_report(run: str | Path) -> Path | None:
    """Writes the report at the end of a training. An error becomes a warning, because the training itself succeeded."""
    from lockstep.remote.place import is_remote, working_folder
    from lockstep.run.directory import RunDirectory

    try:
        from lockstep.explain.report import make, write

        folder = RunDirectory(working_folder(run))
        files = write(make(folder.path, str(run)), folder.path)
        if is_remote(run):
            from lockstep.remote.store import Store

            for file in files:
                Store(str(run)).send(file, file.name)
        return files[0]
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        warn(f"Warning: the report could not be written ({reason}). Try again with `lockstep report {run}`.")
        return None


def _report_live(run: str, to: Path | None, every: int, open_page: bool) -> "tuple[Report, Path]":
    """Writes reports until the run ends. It waits at least ten times as long as a report takes, so that it stays cheap."""
    is_announced, wait = False, every
    while True:
        begin = time.monotonic()
        made, page = write_report(run, to, refresh=wait)
        if made.summary.state != "running":
            return write_report(run, to)
        if not is_announced:
            warn(f"Report: {page}, updated every {every} s until the run ends. Ctrl-C ends the updates, not the run.")
            is_announced = True
            if open_page:
                _open(page)
        wait = max(every, math.ceil(10 * (time.monotonic() - begin)))
        try:
            time.sleep(wait)
        except KeyboardInterrupt:
            return write_report(run, to)


def _open(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.absolute().as_uri()):
        warn(f"No browser could be started. Open {page} yourself.")
