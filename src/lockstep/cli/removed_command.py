"""`lockstep data removed`: the training pairs that cleaning removed, with the reason of each."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = 10


def removed(
    path: Annotated[Path, typer.Argument(help="A prepared corpus, or a run folder.")],
    reason: Annotated[str | None, typer.Option(help="Show only pairs with this reason, such as ratio.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Show all pairs instead of the first ten.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which training pairs cleaning removed: how many for each reason, then the first of them with file and line."""
    from itertools import islice

    from rich.text import Text

    from lockstep.cli.common import print_json
    from lockstep.cli.describe_command import read_facts
    from lockstep.data.corpus.removed_pairs import read_rows
    from lockstep.data.text.clean import REASONS
    from lockstep.errors import LockstepError
    from lockstep.safe_console import SafeConsole

    if reason is not None and reason not in REASONS:
        raise LockstepError(f"There is no reason {reason}.", f"The reasons are: {', '.join(REASONS)}.", code=2)
    folder = _find_corpus(path)
    facts = read_facts(folder)["sets"]["train"]
    rows = (row for row in read_rows(folder) if reason in (None, row.reason))
    shown = rows if every else islice(rows, EXAMPLES)
    if as_json:
        counts = {"read": facts["read"], "removed": facts["removed"]}
        print_json({"path": str(folder), **counts, "pairs": [row._asdict() for row in shown]})
        return
    console = SafeConsole(soft_wrap=True)
    total = sum(facts["removed"].values())
    numbers = f": {total:,} of {facts['read']:,} training pairs were removed"
    console.print(Text.assemble((str(folder), "bold"), numbers))
    for name, count in facts["removed"].items():
        console.print(f"  {name:12}{count:>10,}")
    for row in shown:
        console.print(f"\n{row.reason}  {row.file}, line {row.line:,}", highlight=False)
        console.print(f"  {row.source}\n  {row.target}", markup=False, highlight=False)
    left = facts["removed"].get(reason, 0) if reason else total
    if not every and left > EXAMPLES:
        console.print(f"\n{left - EXAMPLES:,} more: --all shows them.")


def _find_corpus(path: Path) -> Path:
    """Returns the folder of a corpus, or of the corpus on which a run was trained."""
    from lockstep.config import load
    from lockstep.data.corpus.remote_copies import fetch_corpus
    from lockstep.errors import LockstepError
    from lockstep.remote.place import is_remote
    from lockstep.run.directory import RunDirectory

    run = RunDirectory(path)
    if not (run.config.exists() and run.choices.exists()):
        return path
    place = load(run.config, []).data.corpus
    folder = fetch_corpus(str(place)) if is_remote(place) else place
    if folder is None:
        raise LockstepError(f"The corpus of the run {path} is gone.", "Prepare it again.", code=2)
    return Path(folder)
