"""`lockstep checkpoint`: list, explain, verify and prune the checkpoints of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from lockstep.run.checkpoint import Checkpoint

app = typer.Typer(help="List, explain, verify or prune the checkpoints of a run.", no_args_is_help=True)
Run = Annotated[str, typer.Argument(help="A run folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_saved(
    run: Annotated[str, typer.Argument(help="A run folder, or the address of a run.")],
    as_json: AsJson = False,
) -> None:
    """List the checkpoints of a run: step, score, time, size, and why each is kept.

    Whether a checkpoint is complete is judged by the sizes of its files; `lockstep checkpoint verify` compares digests.
    """

    from rich.text import Text

    from lockstep.cli.common import print_json
    from lockstep.explain.checkpoint_list import list_checkpoints, read_saves
    from lockstep.explain.formatting import timestamp
    from lockstep.remote.fetch_run import fetch_run
    from lockstep.remote.place import is_remote
    from lockstep.safe_console import SafeConsole

    has_files = not is_remote(run)
    folder = _open_run(run) if has_files else fetch_run(run, with_manifests=True)
    saves = read_saves(folder / "journal")
    rows = list_checkpoints(folder / "checkpoints", saves, has_files)
    if as_json:
        print_json({"run": run, "metric": saves.metric, "checkpoints": [row.as_dict() for row in rows]})
        return
    console = SafeConsole()
    if not rows:
        console.print(f"There are no checkpoints in {run}.")
        return
    table = _make_table(("step", saves.metric, "saved", "MB", "state", "", "kept among"), left=(2, 4, 5, 6))
    for row in rows:
        score = "-" if row.score is None else f"{row.score:.2f}"
        when = "-" if row.saved_at is None else timestamp(row.saved_at)
        state, reason = ("complete", row.reason) if row.damage is None else (Text("damaged", "red"), row.damage)
        marks = " ".join(["best"] * row.is_best + ["last"] * row.is_last)
        table.add_row(f"{row.step:,}", score, when, _megabytes(row.bytes), state, marks, reason)
    console.print(table)
    console.print(f"{len(rows)} checkpoints, {_megabytes(sum(row.bytes for row in rows))} MB")


@app.command()
def show(
    run: Run,
    step: Annotated[int | None, typer.Option("--step", help="The checkpoint of this step; default: the last.")] = None,
    as_json: AsJson = False,
) -> None:
    """Explain every file of a checkpoint: its size, and what it is for."""

    from lockstep.cli.common import print_json
    from lockstep.explain.answers.checkpoint_contents import get_purpose
    from lockstep.explain.reading.saved_checkpoints import read_saved_checkpoint
    from lockstep.explain.saved_tensors import read_groups
    from lockstep.safe_console import SafeConsole

    path = _choose(run, step).path
    saved = read_saved_checkpoint(path)
    assert saved is not None
    groups = read_groups(path / "state")
    parameters = next((group.values for group in groups if group.name == "model"), 0)
    if as_json:
        files = [{"name": name, "bytes": size, "purpose": get_purpose(name)} for name, size in saved.files.items()]
        tensors = [group.as_dict() for group in groups]
        print_json({"checkpoint": str(path), "bytes": saved.size, "files": files, "state": tensors})
        return
    console = SafeConsole()
    table = _make_table(("file", "MB", "what it is for"), left=(0, 2), title=f"Checkpoint {path}")
    for name, size in saved.files.items():
        table.add_row(name, _megabytes(size), get_purpose(name))
    table.add_section()
    table.add_row("sum", _megabytes(saved.size), f"{len(saved.files)} files")
    console.print(table)
    inside = _make_table(("in state/", "MB", "values", "per parameter", "what it is"), left=(0, 4))
    for group in groups:
        ratio = f"{group.values / parameters:.2f}" if parameters else "-"
        inside.add_row(group.name, _megabytes(group.bytes), f"{group.values:,}", ratio, group.purpose)
    console.print(inside)


@app.command()
def verify(run: Run, as_json: AsJson = False) -> None:
    """Compare every file of every checkpoint with its digest. The exit code is 1 if one is damaged."""

    from rich.text import Text

    from lockstep.cli.common import print_json
    from lockstep.safe_console import SafeConsole

    folders = sorted((_open_run(run) / "checkpoints").glob("step-*"))
    damages, files = _check_digests(folders)
    if as_json:
        print_json({"run": run, "files": files, "checkpoints": {path.name: damages[path] for path in folders}})
    else:
        console = SafeConsole(soft_wrap=True)
        for path in folders:
            for damage in damages[path]:
                console.print(Text.assemble(("damaged", "red"), f" {path.name}: {damage}"))
        bad = sum(bool(damages[path]) for path in folders)
        console.print(f"{len(folders) - bad} of {len(folders)} checkpoints are complete; {files} files were compared.")
    if any(damages.values()):
        raise typer.Exit(1)


@app.command()
def prune(
    run: Run,
    keep_last: Annotated[int, typer.Option("--keep-last", min=1, help="Keep this many of the newest checkpoints.")],
    keep_best: Annotated[
        int, typer.Option("--keep-best", min=0, help="Keep this many of those with the best scores.")
    ] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete checkpoints by the rule of training. The best one and the last one always stay.

    Digests are compared first: a damaged checkpoint is neither counted nor deleted. A run that is being trained is refused.
    """
    from lockstep.cli.common import print_json
    from lockstep.errors import LockstepError
    from lockstep.explain.checkpoint_list import read_saves
    from lockstep.run.checkpoint import list_all
    from lockstep.run.directory import RunDirectory
    from lockstep.run.retention import delete_others, keep_at_least
    from lockstep.safe_console import SafeConsole

    folder = _open_run(run)
    higher_is_better = read_saves(folder / "journal").higher_is_better
    with RunDirectory(folder).lock(patience_seconds=0.0):
        all_saved = list_all(folder / "checkpoints")
        damages, _ = _check_digests([saved.path for saved in all_saved])
        complete = [saved for saved in all_saved if not damages[saved.path]]
        if not complete:
            raise LockstepError(f"{run} has no complete checkpoint, so nothing was deleted.", code=2)
        keep = keep_at_least(keep_last, keep_best, higher_is_better)(complete)
        deleted = [saved for saved in complete if saved.path not in keep]
        if not dry_run:
            delete_others(folder / "checkpoints", {saved.path for saved in all_saved if saved not in deleted})
    verb = "would be deleted" if dry_run else "deleted"
    fates = {saved.step: "damaged, left alone" if damages[saved.path] else "kept" for saved in all_saved}
    fates |= {saved.step: verb for saved in deleted}
    freed = sum(saved.bytes for saved in deleted)
    if as_json:
        print_json({"run": run, "checkpoints": fates, "freed_bytes": freed, "dry_run": dry_run})
        return
    table = _make_table(("step", "score", "MB", ""), left=(3,))
    for saved in all_saved:
        score = "-" if saved.score is None else f"{saved.score:.2f}"
        table.add_row(f"{saved.step:,}", score, _megabytes(saved.bytes), fates[saved.step])
    console = SafeConsole()
    console.print(table)
    console.print(f"{_megabytes(freed)} MB {'would be' if dry_run else 'were'} freed.")


def _open_run(place: str) -> Path:
    """Returns the folder of a local run, or raises the error that says what is there instead."""
    from lockstep.errors import LockstepError
    from lockstep.remote.place import is_remote

    if is_remote(place):
        remedy = "Name the folder of a run; only `lockstep checkpoint list` reads an address."
        raise LockstepError("This command needs a run in a local folder, not an address.", remedy, code=2)
    run = Path(place)
    if not (run / "journal").is_dir() and not (run / "checkpoints").is_dir():
        what = f"{run} is not a run." if run.exists() else f"There is no run folder {run}."
        raise LockstepError(what, "`lockstep runs FOLDER` lists the runs in a folder.", code=2)
    return run


def _choose(run: str, step: int | None) -> "Checkpoint":
    from lockstep.errors import LockstepError
    from lockstep.run.checkpoint import list_all

    all_saved = list_all(_open_run(run) / "checkpoints")
    chosen = [saved for saved in all_saved if step in (None, saved.step)]
    if not chosen:
        known = ", ".join(f"{saved.step:,}" for saved in all_saved) or "none"
        which = "a checkpoint" if step is None else f"a checkpoint of step {step:,}"
        raise LockstepError(f"{run} does not have {which}.", f"Its checkpoints are of these steps: {known}.", code=2)
    return chosen[-1]


def _check_digests(folders: Sequence[Path]) -> tuple[dict[Path, list[str]], int]:
    """Returns what is damaged in every checkpoint, and how many files were compared. Shows progress on stderr."""
    from lockstep.cli.common import show_progress
    from lockstep.explain.checkpoint_list import NO_MANIFEST
    from lockstep.run.checkpoint import read_checkpoint

    checkpoints = {path: read_checkpoint(path) for path in folders}
    damages = {path: [NO_MANIFEST] if saved is None else list[str]() for path, saved in checkpoints.items()}
    total, done = sum(len(saved.manifest["files"]) for saved in checkpoints.values() if saved is not None), 0
    with show_progress("comparing digests") as report:
        for path, saved in checkpoints.items():
            for _, damage in saved.check_files() if saved is not None else ():
                damages[path] += [damage] if damage is not None else []
                done += 1
                report(done, total)
    return damages, done


def _make_table(headings: Sequence[str], left: Sequence[int], title: str | None = None) -> "Table":
    """Returns an empty table. The columns in `left` are texts, the others numbers. Only the last one is broken into
    lines."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, title=title, title_justify="left", pad_edge=False)
    for number, heading in enumerate(headings):
        is_last = number + 1 == len(headings)
        table.add_column(heading, justify="left" if number in left else "right", no_wrap=not is_last)
    return table


def _megabytes(size: int) -> str:
    from lockstep.explain.formatting import number

    return number(size / 1e6)
