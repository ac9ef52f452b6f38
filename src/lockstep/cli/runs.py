"""`lockstep runs`."""

from pathlib import Path
from typing import Annotated

import typer


def runs(
    folder: Annotated[Path, typer.Argument(help="The folder that holds runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the runs in a folder: state, step, best score, speed."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from lockstep.cli.common import print_json
    from lockstep.errors import LockstepError
    from lockstep.explain.summary import summarise

    if not folder.is_dir():
        raise LockstepError(f"There is no folder {folder}.", "Name the folder that holds your runs.", code=2)
    found = [summarise(path.parent) for path in sorted(folder.glob("**/config.yaml")) if _is_run(path.parent)]
    if as_json:
        print_json([summary.as_dict() for summary in found])
        return
    table = Table(box=box.SIMPLE)
    for heading in ("run", "state", "step", "best BLEU", "at step", "words/s", "workers"):
        table.add_column(heading, justify="left" if heading in ("run", "state") else "right", overflow="fold")
    for summary in found:
        score = "-" if summary.best_score is None else f"{summary.best_score:.2f}"
        speed = "-" if summary.words_per_second is None else f"{summary.words_per_second:,.0f}"
        at = "-" if summary.best_step is None else f"{summary.best_step:,}"
        table.add_row(escape(summary.run), summary.state, f"{summary.step:,}", score, at, speed, str(summary.workers))
    Console().print(table if found else f"No runs in {folder}.")


def _is_run(path: Path) -> bool:
    return (path / "journal").is_dir()
