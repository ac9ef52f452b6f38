"""Machines that ssh reaches: no scheduler, no shared file system."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.jobs.job import Job
from lockstep.jobs.kind import Process, State, Submission
from lockstep.jobs.over_ssh.host_output import HostOutput
from lockstep.jobs.over_ssh.launch_state import (
    LOG_FILE,
    describe_own,
    make_launch_folder,
    read_launch_state,
    write_state,
)
from lockstep.jobs.over_ssh.script import parse_script, print_script
from lockstep.jobs.over_ssh.ssh_launch import SshLaunch
from lockstep.jobs.over_ssh.torchrun_command import make_absolute, make_commands

CANCEL_SECONDS = 60.0
"""Longer than the workers may take to save."""


class SshKind:
    """Launches over ssh. The command stays in the foreground: when it ends, all ends. `on_start` gets the submission as
    soon as the hosts are ready, for the record of jobs."""

    name = "ssh"

    def __init__(self, on_start: Callable[[Submission], None] = lambda submission: None) -> None:
        self._on_start = on_start

    def print_job(self, job: Job) -> str:
        return print_script(job)

    def parse(self, text: str) -> list[Process]:
        return parse_script(text)

    def submit(self, job: Job) -> Submission:
        """Runs the job to its end. A signal ends this process with the exit code of that signal."""
        first = make_commands(job)[0].host.name
        run = make_absolute(job).run
        place = run if "://" in run else f"{first}:{run}"
        folder = make_launch_folder(job.name)
        state = describe_own(job.name, run, place)
        write_state(folder, state)
        facts = {"folder": str(folder), "place": place}
        submission = Submission(self.name, job.name, folder.name, run, state.time, facts)
        try:
            with HostOutput(folder / LOG_FILE, [host.name for host in job.hosts]) as output:
                with SshLaunch(job, output) as launch:
                    launch.run(lambda: self._on_start(submission))
                output.say(f"The run is in {place}.")
        except LockstepError as error:
            write_state(folder, replace(state, state=State.FAILED, sentence=error.message))
            raise
        except SystemExit:
            write_state(folder, replace(state, state=State.CANCELLED, sentence=f"Stopped. The run is in {place}."))
            raise
        write_state(folder, replace(state, state=State.FINISHED))
        return submission

    def read_state(self, submission: Submission) -> State:
        return read_launch_state(Path(submission.facts["folder"])).state

    def read_logs(self, submission: Submission) -> str:
        with suppress(FileNotFoundError):
            return (Path(submission.facts["folder"]) / LOG_FILE).read_text(encoding="utf-8", errors="replace")
        return ""

    def cancel(self, submission: Submission) -> None:
        """Tells the command that watches the job to stop it, and waits until it has."""
        state = read_launch_state(Path(submission.facts["folder"]))
        if state.state != State.RUNNING:
            raise LockstepError(f"Job {submission.name} does not run: it is {state.state}.", code=2)
        os.kill(state.pid, signal.SIGTERM)
        deadline = time.monotonic() + CANCEL_SECONDS
        while state.process.is_alive():
            if time.monotonic() > deadline:
                raise LockstepError(f"Job {submission.name} did not stop within {CANCEL_SECONDS:.0f} s.", "Try again.")
            time.sleep(0.1)
