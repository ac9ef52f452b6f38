"""Machines that ssh reaches: no scheduler, no shared file system."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.jobs.detached import read_log
from lockstep.jobs.job import Job
from lockstep.jobs.job_record import log_file, remember
from lockstep.jobs.kind import JobProcess, JobState, Submission
from lockstep.jobs.over_ssh.host_output import HostOutput
from lockstep.jobs.over_ssh.launch_state import describe_own, read_launch_state, state_file, write_state
from lockstep.jobs.over_ssh.script import parse_script, print_script
from lockstep.jobs.over_ssh.ssh_launch import SshLaunch
from lockstep.jobs.over_ssh.torchrun_command import make_absolute, make_commands

CANCEL_SECONDS = 60.0
"""Longer than the workers may take to save."""


class SshKind:
    """Launches over ssh. The command stays until the job ends: when it ends itself, all ends."""

    name = "ssh"

    def print_job(self, job: Job) -> str:
        return print_script(job)

    def parse(self, text: str) -> list[JobProcess]:
        return parse_script(text)

    def submit(self, job: Job) -> Submission:
        """Runs the job to its end. A signal ends this process with the exit code of that signal."""
        submission = _describe(job)
        path, log = Path(submission.facts["state"]), Path(submission.facts["log"])
        state = describe_own()
        try:
            with HostOutput(log, [host.name for host in job.hosts]) as output, SshLaunch(job, output) as launch:
                write_state(path, state)
                remember(submission)
                launch.run()
                output.say(f"The run is in {submission.facts['place']}.")
        except LockstepError as error:
            write_state(path, replace(state, state=JobState.FAILED, sentence=error.message))
            raise
        except SystemExit:
            write_state(path, replace(state, state=JobState.CANCELLED))
            raise
        write_state(path, replace(state, state=JobState.FINISHED))
        return submission

    def read_state(self, submission: Submission) -> JobState:
        return read_launch_state(Path(submission.facts["state"])).state

    def read_logs(self, submission: Submission) -> str:
        return read_log(Path(submission.facts["log"]))

    def cancel(self, submission: Submission) -> None:
        """Tells the command that watches the job to stop it, and waits until it has."""
        state = read_launch_state(Path(submission.facts["state"]))
        if state.state != JobState.RUNNING:
            return
        os.kill(state.pid, signal.SIGTERM)
        deadline = time.monotonic() + CANCEL_SECONDS
        while state.process.is_alive():
            if time.monotonic() > deadline:
                raise LockstepError(f"{submission.name} did not stop within {CANCEL_SECONDS:.0f} s.", "Try again.")
            time.sleep(0.1)


def _describe(job: Job) -> Submission:
    """Returns what the record of jobs keeps of a launch by this process."""
    run = make_absolute(job).run
    place = run if "://" in run else f"{make_commands(job)[0].host.name}:{run}"
    facts = {"state": str(state_file(job.name)), "log": str(log_file(job.name)), "place": place}
    return Submission("ssh", job.name, str(os.getpid()), run, time.time(), facts)
