"""The record of the jobs that were launched from this account: a JSON file for each, in the state folder."""

import json
import time
from dataclasses import asdict
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.files import damaged, read_json, write_json
from lockstep.jobs.kind import Submission
from lockstep.run import environment_variables


def jobs_folder() -> Path:
    """Returns the folder of the record, which only its owner can read."""
    folder = environment_variables.state_folder() / "jobs"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise LockstepError(
            f"The record of jobs cannot be kept in {folder}: {error.strerror}.", "Set LOCKSTEP_STATE to another folder."
        ) from None
    return folder


def check_is_new(name: str) -> None:
    """Refuses the name of a job that is in the record."""
    if _find_file(name).exists():
        remedy = f"Choose another --name, or see `lockstep jobs status {name}`."
        raise LockstepError(f"There is a job {name} in the record already.", remedy, code=2)


def remember(submission: Submission) -> None:
    """Writes a job into the record."""
    write_json(_find_file(submission.name), asdict(submission))


def find_job(name: str | None) -> Submission:
    """Returns the job of that name; without a name, the newest one."""
    jobs = list_jobs()
    if not jobs:
        raise LockstepError("No job was launched yet.", "Launch one: lockstep launch CONFIG --on KIND", code=2)
    if name is None:
        return jobs[-1]
    match = next((job for job in jobs if job.name == name), None)
    if match is None:
        raise LockstepError(f"There is no job {name} in the record.", "`lockstep jobs list` shows all.", code=2)
    return match


def list_jobs() -> list[Submission]:
    """Returns all jobs of the record, the newest one last."""
    files = jobs_folder().glob("*.json")
    return sorted((_read(path) for path in files), key=lambda job: job.time)


def make_name(stem: str) -> str:
    """Returns a name that every platform takes: that of the config, and the time."""
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stem.lower()).strip("-")
    if not letters[:1].isalpha():
        letters = f"job-{letters}".strip("-")
    return f"{letters[:30].rstrip('-')}-{time.strftime('%m%d-%H%M%S')}"


def log_file(name: str) -> Path:
    """Where a job that runs on this machine prints."""
    return jobs_folder() / f"{name}.log"


def _find_file(name: str) -> Path:
    return jobs_folder() / f"{name}.json"


def _read(path: Path) -> Submission:
    try:
        return Submission(**read_json(path))
    except (TypeError, json.JSONDecodeError):
        raise damaged(path, "it does not describe a job") from None
