"""How a launch over ssh stands, for other terminals of the machine on which its command runs."""

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.files import read_json, write_json
from lockstep.jobs.job_record import jobs_folder
from lockstep.jobs.kind import JobState
from lockstep.monitor_folder import Process


@dataclass(frozen=True)
class LaunchState:
    """What the command that watches a launch writes about it."""

    pid: int
    start: int  # of the command's process, in ticks since the machine was started
    state: JobState = JobState.RUNNING
    sentence: str = ""  # about the end

    @property
    def process(self) -> Process:
        return Process(self.pid, self.start)


def state_file(name: str) -> Path:
    """Where the state of a launch is, beside the record of jobs."""
    return jobs_folder() / f"{name}.state"


def describe_own() -> LaunchState:
    """Returns the state of a launch that this process watches."""
    own = Process.of(os.getpid())
    return LaunchState(own.pid, own.start)


def write_state(path: Path, state: LaunchState) -> None:
    write_json(path, asdict(state))


def read_launch_state(path: Path) -> LaunchState:
    """Returns how a launch stands. A command that was killed has written nothing about its end."""
    facts = read_json(path)
    if facts is None:
        raise LockstepError(f"{path} does not exist.", "It was deleted; the run is on its first host.")
    state = LaunchState(**{**facts, "state": JobState(facts["state"])})
    if state.state == JobState.RUNNING and not state.process.is_alive():
        return replace(state, state=JobState.FAILED, sentence="The command that watched it was killed.")
    return state
