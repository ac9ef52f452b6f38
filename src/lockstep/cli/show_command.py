"""`lockstep data show`."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import numpy as np

    from lockstep.lab.audit.share_lines import JournalledShares
    from lockstep.tasks.task import GlobalBatch, Task


def show(
    run: Annotated[str, typer.Argument(help="A run folder, or the address of a run.")],
    step: Annotated[int, typer.Option("--step", min=1, help="The step whose global batch is shown.")],
    worker: Annotated[
        int | None, typer.Option("--worker", min=0, help="Show only the share that this worker computed.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show at most this many samples.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a run trained on in one step: sentence pairs as text, or images as numbers and classes.

    The batch is computed again from the run's config and corpus. That of a step that is still to come is shown too.
    """
    from lockstep.cli.common import print_json
    from lockstep.cli.find_runs import open_run
    from lockstep.errors import LockstepError
    from lockstep.lab.audit.share_lines import read_shares
    from lockstep.lab.replay import describe_samples, find_batch, open_task
    from lockstep.safe_console import SafeConsole

    folder = open_run(run)
    task, config = open_task(folder)
    journalled = read_shares(folder / "journal")
    steps = max(config.train.steps, journalled.last_step)
    if step > steps:
        raise LockstepError(f"{run} ends before step {step:,}.", f"Name a step from 1 to {steps:,}.", code=2)
    batch = find_batch(task, step)
    indices = batch.indices if worker is None else _select_share(task, batch, journalled, step, worker)
    samples = describe_samples(task, indices[:limit])
    facts = {
        "step": step,
        "pass": batch.after.epoch + (batch.after.cursor > 0),
        "batch": batch.digest,
        "is_trained": step in journalled.by_step,
        "worker": worker,
        "samples": len(indices),
        "target_words": task.order.target_words(indices),
    }
    if as_json:
        print_json({"run": run, **facts, "shown": samples})
        return
    console = SafeConsole(soft_wrap=True, highlight=False, markup=False)
    whose = "" if worker is None else f", share of worker {worker}"
    unit = "target words" if task.unit == "words" else task.unit
    size = f"{len(indices):,} samples, {facts['target_words']:,} {unit}"
    later = "" if facts["is_trained"] else "; not trained yet"
    console.print(f"Step {step:,}, pass {facts['pass']}{whose}: {size}{later}", style="bold")
    for sample in samples:
        first, *others = (str(value) for value in sample.values())
        console.print("\n".join([f"{first:>8}  {' '.join(others[:1])}", *(f"{'':10}{other}" for other in others[1:])]))
    if len(indices) > limit:
        console.print(f"{len(indices) - limit:,} more: --limit {len(indices)} shows all.")


def _select_share(
    task: "Task", batch: "GlobalBatch", journalled: "JournalledShares", step: int, worker: int
) -> "np.ndarray":
    """Returns what a worker computed of a step, by the number of workers of the launch that took it."""
    import numpy as np

    from lockstep.errors import LockstepError

    shares = journalled.by_step.get(step, [])
    attempt = shares[0].attempt if shares else max(journalled.launches, default=1)
    launch = journalled.launches.get(attempt)
    workers = launch.workers if launch is not None else 1
    if worker >= workers:
        raise LockstepError(f"Step {step:,} has no worker {worker}.", f"It has workers 0 to {workers - 1}.", code=2)
    if shares and len(shares) != workers:
        raise LockstepError(
            f"The journal has {len(shares)} of {workers} lines of step {step:,}: how it was divided is not known.",
            "Leave --worker out to see the whole batch.",
        )
    parts = [worker]
    if shares and shares[0].part is not None:  # asynchronous workers take any share
        parts = [share.part for share in shares if share.rank == worker and share.part is not None]
    empty = batch.indices[:0]
    return np.concatenate([empty, *(task.order.share(batch, part, workers) for part in parts)])
