"""`lockstep runs audit`."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from lockstep.lab.audit.compare_order import Audit

SHOWN = 20
"""Differences that are printed; `--json` has all."""


def audit(
    run: Annotated[str, typer.Argument(help="A run folder, or the address of a run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prove from the journal that every sample was used exactly once in each pass, over all interruptions.

    The order of the batches is computed again from the run's config and corpus, and every step of every worker is compared
    with it. The exit code is 1 if something differs.
    """
    from dataclasses import asdict

    from lockstep.cli.common import print_json
    from lockstep.cli.find_runs import open_run
    from lockstep.errors import LockstepError
    from lockstep.lab.audit.audit_text import list_limits, write_verdict
    from lockstep.lab.audit.compare_order import audit as compare_with_order
    from lockstep.lab.audit.share_lines import read_shares
    from lockstep.lab.replay import open_task
    from lockstep.safe_console import SafeConsole

    folder = open_run(run)
    journalled = read_shares(folder / "journal")
    if not journalled.by_step:
        raise LockstepError(f"The journal of {run} has no step.", "Train the run first.", code=2)
    if any("input" in launch.without for launch in journalled.launches.values()):
        remedy = "Audit a run that was started without LOCKSTEP_WITHOUT."
        raise LockstepError(f"{run} is an ablation run without input: it uses its first batches again.", remedy, code=2)
    task, _ = open_task(folder)
    result = compare_with_order(journalled, task.batches(0, 0), len(task.order.target_lengths))
    verdict, limits = write_verdict(result, journalled, task.unit), list_limits(result, journalled)
    if as_json:
        facts = {"interruptions": journalled.interruptions, "computed_again": journalled.undone, "limits": limits}
        differences = [difference._asdict() for difference in result.differences]
        print_json({"run": run, "verdict": verdict, **asdict(result), **facts, "differences": differences})
    else:
        console = SafeConsole(soft_wrap=True, highlight=False)
        console.print(verdict, style="bold" if result.is_clean else "bold red")
        console.print(_make_table(result))
        for step, what in result.differences[:SHOWN]:
            console.print(f"step {step:,}: {what}")
        if len(result.differences) > SHOWN:
            console.print(f"{len(result.differences) - SHOWN:,} more: --json has all.")
        for sentence in limits:
            console.print(sentence)
    if not result.is_clean:
        raise typer.Exit(1)


def _make_table(result: "Audit") -> "Table":
    """Returns a row per pass: how many samples were used once, never, and more than once."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for heading in ("pass", "steps", "once", "never", "more", "skipped", "launches", ""):
        table.add_column(heading, justify="left" if heading == "" else "right", no_wrap=True)
    for one in result.passes:
        counts = (one.once, one.never, one.more, one.skipped)
        launches = "-".join(map(str, sorted({*one.launches[:1], *one.launches[-1:]})))
        state = "complete" if one.is_complete else "open"
        steps = f"{one.first_step:,}-{one.last_step:,}"
        table.add_row(f"{one.number:,}", steps, *(f"{number:,}" for number in counts), launches, state)
    return table
