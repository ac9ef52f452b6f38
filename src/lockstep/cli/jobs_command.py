"""`lockstep jobs`: what was launched from this account."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lockstep.jobs.kind import JobState, Submission

app = typer.Typer(help="Follow the jobs that `lockstep launch` has started.", no_args_is_help=True)

Name = Annotated[str | None, typer.Argument(help="Name of the job. Default: the newest one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command("list")
def list_all(as_json: AsJson = False) -> None:
    """List all jobs, the newest one first."""
    from rich import box
    from rich.table import Table

    from lockstep.cli.common import print_json
    from lockstep.jobs.job_record import list_jobs
    from lockstep.safe_console import SafeConsole

    rows = [_describe(job) for job in reversed(list_jobs())]
    if as_json:
        print_json(rows)
        return
    table = Table(box=box.SIMPLE)
    for title in ("job", "on", "state", "launched", "run"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(str(row[key]) for key in ("name", "kind", "state", "launched", "run")))
    SafeConsole().print(table)


@app.command()
def status(name: Name = None, as_json: AsJson = False) -> None:
    """Say how a job stands.

    The cluster is asked first. Where it has forgotten the job, the journal of its run and its output decide.
    """
    from lockstep.cli.common import print_json, print_text
    from lockstep.jobs.job_record import find_job

    facts = _describe(find_job(name))
    if as_json:
        print_json(facts)
        return
    print_text(f"{facts['name']} on {facts['kind']} ({facts['id']}) is {facts['state']}. Its run is {facts['run']}.")


@app.command()
def logs(name: Name = None, as_json: AsJson = False) -> None:
    """Print what a job has printed."""
    from lockstep.cli.common import print_json, print_text
    from lockstep.jobs.job_record import find_job
    from lockstep.jobs.registry import find_kind

    job = find_job(name)
    text = find_kind(job.kind).load().read_logs(job)
    if as_json:
        print_json({"name": job.name, "text": text})
    else:
        print_text(*text.splitlines())


@app.command()
def cancel(name: Name = None, as_json: AsJson = False) -> None:
    """End a job. Where the platform lets it, the training saves a checkpoint first."""
    from lockstep.cli.common import print_json, print_text
    from lockstep.errors import LockstepError
    from lockstep.jobs.job_record import find_job, remember
    from lockstep.jobs.kind import JobState
    from lockstep.jobs.registry import find_kind

    job = find_job(name)
    state = _read_state(job)
    if state in (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED):
        raise LockstepError(f"{job.name} has ended already: it is {state}.", "`lockstep jobs list` shows all.", code=2)
    find_kind(job.kind).load().cancel(job)
    remember(replace(job, facts={**job.facts, "cancelled": "yes"}))
    if as_json:
        print_json({"name": job.name, "cancelled": True})
    else:
        print_text(f"{job.name} was asked to end.")


def _read_state(job: "Submission") -> "JobState":
    from lockstep.jobs.registry import find_kind

    return find_kind(job.kind).load().read_state(job)


def _describe(job: "Submission") -> dict[str, object]:
    import time

    launched = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.time))
    return {**asdict(job), "state": str(_read_state(job)), "launched": launched}
