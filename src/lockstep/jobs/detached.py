"""A job that runs on this machine, in the background: it continues when the terminal is closed."""

import os
import signal
import subprocess
import time
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.jobs.job import Job
from lockstep.jobs.job_record import log_file
from lockstep.jobs.judge_run import judge_run
from lockstep.jobs.kind import JobState, Submission
from lockstep.run import environment_variables


def start_detached(kind: str, job: Job, script: str) -> Submission:
    """Runs a script with bash in a session of its own."""
    log = log_file(job.name)
    with log.open("ab") as output:
        os.chmod(log, 0o600)
        process = subprocess.Popen(
            ["bash", "-c", script, job.name],
            env=environment_variables.copy_without_secret(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    facts = {"started": _read_start(process.pid), "log": str(log)}
    return Submission(kind, job.name, str(process.pid), job.run, time.time(), facts)


def read_detached_state(submission: Submission) -> JobState:
    return JobState.RUNNING if _is_alive(submission) else judge_run(submission, Path(submission.facts["log"]))


def read_detached_logs(submission: Submission) -> str:
    return read_log(Path(submission.facts["log"]))


def read_log(path: Path) -> str:
    """Returns the text of a file that a job prints to."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise LockstepError(f"{path} cannot be read: {error.strerror}.", "The job may not have started yet.") from None


def end_detached(submission: Submission) -> None:
    """Asks the job to stop: Lockstep saves a checkpoint first."""
    if _is_alive(submission):
        os.kill(int(submission.id), signal.SIGTERM)


def _is_alive(submission: Submission) -> bool:
    started = _read_start(int(submission.id))
    return started != "" and started == submission.facts.get("started")


def _read_start(pid: int) -> str:
    """Returns when a process started, in ticks of the kernel, which tells it from a later one with the same number; empty
    if there is none."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if state == "Z" else rest[18]
