"""A host of a launch, as the command that watches it sees it."""

import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.hosts.agent_channel import AgentChannel, ChannelLost
from lockstep.jobs.over_ssh.torchrun_command import HostCommand

PROGRAM = "torchrun"
PING_SECONDS = 3.0
MARGIN = 3
"""Characters between the name of a host and what it prints."""
LEAST_COLUMNS = 60


class HostState(Enum):
    RUNNING = "running"
    ENDED = "ended"  # its torchrun has
    LOST = "lost"  # the connection is


@dataclass
class WatchedHost:
    """What is known of a host."""

    command: HostCommand
    channel: AgentChannel
    variables: dict[str, str] = field(default_factory=dict)  # that depend on the host
    state: HostState = HostState.RUNNING
    code: int | None = None  # with which torchrun ended

    @property
    def name(self) -> str:
        return self.command.host.name

    def start(self, secret: dict[str, str], folder: str, run: str) -> None:
        """Starts torchrun. The secret goes through the agent's pipe to the environment of the processes."""
        width = shutil.get_terminal_size().columns - len(self.name) - MARGIN
        variables = self.command.variables | self.variables | secret | {"COLUMNS": str(max(LEAST_COLUMNS, width))}
        words: list[JsonValue] = list(self.command.words)
        self.channel.ask("start", name=PROGRAM, words=words, variables=dict(variables), folder=folder, run=run)
        self.state, self.code = HostState.RUNNING, None
        threading.Thread(target=self._keep_alive, args=(self.channel,), daemon=True).start()

    def _keep_alive(self, channel: AgentChannel) -> None:
        """Lets the agent hear something."""
        pause = threading.Event()
        while not pause.wait(PING_SECONDS):
            try:
                channel.ask("clock")
            except ChannelLost:
                return
            except LockstepError:
                continue  # it is late

    def send_signal(self, number: int) -> None:
        with suppress(LockstepError):
            self.channel.ask("signal", 5.0, name=PROGRAM, number=number)

    def end_workers(self) -> None:
        """Has torchrun start its workers again."""
        with suppress(LockstepError):
            self.channel.ask("end children", 5.0, name=PROGRAM)
