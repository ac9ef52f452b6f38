"""Judges a job by its run where the engine has forgotten it, such as Slurm without an accounting database."""

from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.jobs.kind import JobState, Submission
from lockstep.remote.place import is_remote

STATES = {
    "running": JobState.RUNNING,
    "finished": JobState.FINISHED,
    "stopped": JobState.CANCELLED,
    "cut off": JobState.FAILED,
}
"""What the state of a run says about the job that trained it and is no longer there."""


def judge_run(submission: Submission, output: Path | None = None) -> JobState:
    """Returns how a job stands by its journal, or where it has written none, by its output."""
    state = _read_run_state(submission)
    if state == JobState.RUNNING:
        return state
    if "cancelled" in submission.facts:
        return JobState.CANCELLED
    if state is not None:
        return state
    text = output.read_text(encoding="utf-8", errors="replace") if output is not None and output.exists() else ""
    if "Nothing to do: step" in text:
        return JobState.FINISHED
    return JobState.FAILED if "Error: " in text or "Traceback" in text else JobState.UNKNOWN


def _read_run_state(submission: Submission) -> JobState | None:
    """Returns the state of the run; None if it has not begun since the submission."""
    from lockstep.explain.reading.record import Record

    try:
        folder = Path(submission.run)
        if is_remote(submission.run):
            from lockstep.remote.fetch_run import fetch_run

            folder = fetch_run(submission.run)
        record = Record(folder)
        marks = [event for event in record.primary.events if event["kind"] in ("run", "stop")]
    except LockstepError:
        return None
    if not marks or float(marks[-1].get("time", 0.0)) < submission.time:
        return None
    return STATES[record.state]
