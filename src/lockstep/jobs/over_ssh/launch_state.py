"""How a launch over ssh stands, for other terminals of the machine on which its command runs."""

import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.files import read_json, write_json
from lockstep.jobs.kind import State
from lockstep.monitor_folder import Process as SystemProcess
from lockstep.run import environment_variables

STATE_FILE, LOG_FILE = "state.json", "log"


@dataclass(frozen=True)
class LaunchState:
    """What the command that watches a launch writes about it."""

    name: str
    run: str
    place: str  # of the run: the first host and the folder, or an address
    pid: int
    start: int  # of the command's process, in ticks since the machine was started
    time: float = field(default_factory=time.time)  # seconds since 1970
    state: State = State.RUNNING
    sentence: str = ""  # about the end

    @property
    def process(self) -> SystemProcess:
        return SystemProcess(self.pid, self.start)


def make_launch_folder(name: str) -> Path:
    """Makes the folder of a launch of this user."""
    folder = environment_variables.state_folder() / "ssh" / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True, mode=0o700)
    return folder


def describe_own(name: str, run: str, place: str) -> LaunchState:
    """Returns the state of a launch that this process watches."""
    own = SystemProcess.of(os.getpid())
    return LaunchState(name, run, place, own.pid, own.start)


def write_state(folder: Path, state: LaunchState) -> None:
    write_json(folder / STATE_FILE, asdict(state))


def read_launch_state(folder: Path) -> LaunchState:
    """Returns how a launch stands. A command that was killed has written nothing about its end."""
    facts = read_json(folder / STATE_FILE)
    if facts is None:
        raise LockstepError(f"{folder} has no state of a launch.", "It was deleted; the run is on its first host.")
    state = LaunchState(**{**facts, "state": State(facts["state"])})
    if state.state == State.RUNNING and not state.process.is_alive():
        return LaunchState(**{**facts, "state": State.FAILED, "sentence": "The command that watched it was killed."})
    return state
