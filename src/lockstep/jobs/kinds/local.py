"""One machine: `lockstep train` with as many workers as the job has."""

import os
import shlex
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.jobs.detached import end_detached, read_detached_logs, read_detached_state, start_detached
from lockstep.jobs.job import Job
from lockstep.jobs.kind import JobProcess, JobState, Submission


class LocalKind:
    """Starts `lockstep train`, which starts the workers and makes their secret."""

    name = "local"

    def print_job(self, job: Job) -> str:
        if job.nodes != 1 or job.hosts:
            raise LockstepError(
                "--on local is for this machine only.", "Leave out --nodes and --hosts, or choose another kind.", code=2
            )
        servers = ["--servers", str(job.servers)] if job.servers else []
        words = [job.python, "-m", "lockstep", *job.train_words, "--workers", str(job.workers_per_node), *servers]
        plural = "s" * (job.workers_per_node != 1)
        return (
            f"# Trains with {job.workers_per_node} worker{plural} on this machine. The launcher makes their secret.\n"
            f"cd {shlex.quote(os.getcwd())}\n"
            f"exec {shlex.join(words)}\n"
        )

    def parse(self, text: str) -> list[JobProcess]:
        return [JobProcess(("bash", "-c", text), {}, 0, ("localhost",))]

    def submit(self, job: Job) -> Submission:
        return start_detached(self.name, job, self.print_job(job))

    def read_state(self, submission: Submission) -> JobState:
        return read_detached_state(submission)

    def read_logs(self, submission: Submission) -> str:
        return read_detached_logs(submission)

    def cancel(self, submission: Submission) -> None:
        end_detached(submission)


def make_absolute(path: str) -> str:
    """Returns a path that holds in every folder, and an address as it is."""
    return path if "://" in path else str(Path(path).absolute())
