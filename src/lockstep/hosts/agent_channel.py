"""A command's end of the channel to a host's agent."""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Self

from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.hosts.hosts_file import Host

SSH_OPTIONS = (
    "-o",
    "BatchMode=yes",
    "-o",
    "StrictHostKeyChecking=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=3",
    "-o",
    "ServerAliveCountMax=3",
)
"""Asks nothing, and a host key that is not known is an error, whatever ~/.ssh/config says. A host that is silent for nine
seconds is lost."""
HELLO_SECONDS = 30.0
NOISE_LINES = 200
"""How many lines a login script may print before the agent speaks."""
KEPT_LINES = 20
INSTALL = "Install Lockstep there, in the same place as here, or name its interpreter with --python."
SSH_REMEDIES = {
    "Host key verification failed": "Compare the host's key with the one that its administrator has, and add it to "
    "known_hosts.",
    "Permission denied": "Give ssh a key that this host accepts: ssh-copy-id, or an entry in ~/.ssh/config.",
    "No module named": INSTALL,
    "Connection refused": "No sshd listens there: check the port, in the hosts file as port=...",
    "timed out": "Check the address, and whether a firewall lets ssh pass.",
    "Could not resolve hostname": "Check the name, or add it to ~/.ssh/config.",
    "No such file or directory": INSTALL,
    "not found": INSTALL,
}


Event = Mapping[str, JsonValue]
OnEvent = Callable[[str, Event], None]
"""Gets the name of a host and what its agent tells unasked. `{"event": "lost"}` is the last one."""


class ChannelLost(LockstepError):
    """The connection to a host, or its agent, is gone."""


def make_agent_command(host: Host | None, ssh: Sequence[str], python: str) -> list[str]:
    """Returns the command that starts the agent of a host; None is this machine."""
    program = [python, "-m", "lockstep.hosts.agent"]
    if host is None:
        return program
    port = [] if host.port is None else ["-p", str(host.port)]
    return [*ssh, *SSH_OPTIONS, *port, host.place, " ".join(program)]


class AgentChannel:
    """Asks the agent of one host."""

    def __init__(self, name: str, command: Sequence[str], on_event: OnEvent = lambda name, event: None) -> None:
        self.name, self._on_event = name, on_event
        self._answers: dict[int, queue.Queue[dict[str, JsonValue] | None]] = {}
        self._errors: list[str] = []
        self._lock, self._number, self._is_over = threading.Lock(), 0, False
        pipe = subprocess.PIPE
        # A session of its own: Ctrl-C is for the command, which then tells the agents.
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace", start_new_session=True
        )
        self._hello: queue.Queue[dict[str, JsonValue] | None] = queue.Queue()
        self._error_reader = threading.Thread(target=self._read_errors, daemon=True)
        self._error_reader.start()
        threading.Thread(target=self._read_answers, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_for_hello(self, seconds: float = HELLO_SECONDS) -> dict[str, JsonValue]:
        """Waits until the agent has started; returns what it says of itself. Raises ChannelLost."""
        try:
            hello = self._hello.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise ChannelLost(f"{self.name} did not answer within {seconds:.0f} s.", "Try ssh by hand.") from None
        if hello is None:
            raise self.explain_loss()
        return hello

    def ask(self, action: str, seconds: float = 30.0, **arguments: JsonValue) -> JsonValue:
        """Has the agent do something; returns the result. Raises LockstepError with its error, or ChannelLost."""
        answers: queue.Queue[dict[str, JsonValue] | None] = queue.Queue()
        with self._lock:
            self._number += 1
            number = self._number
            self._answers[number] = answers
            if self._is_over:
                raise self.explain_loss()
            self._write({"id": number, "do": action, "with": arguments})
        try:
            answer = answers.get(timeout=seconds)
        except queue.Empty:
            raise LockstepError(f"{self.name} did not finish {action!r} within {seconds:.0f} s.") from None
        finally:
            del self._answers[number]
        if answer is None:
            raise self.explain_loss()
        if "error" in answer:
            raise LockstepError(str(answer["error"]), str(answer["remedy"]))
        return answer["result"]

    def _write(self, request: Mapping[str, JsonValue]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self.explain_loss() from None

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        is_started, noise = False, 0
        for line in self._process.stdout:
            message = _parse(line)
            if message is None or not is_started:
                is_started = message is not None and "hello" in message
                noise += 1
                if is_started:
                    self._hello.put(message)
                elif noise > NOISE_LINES:
                    break
                continue
            if "event" in message:
                self._on_event(self.name, message)
                continue
            waiting = self._answers.get(int(str(message["id"])))
            if waiting is not None:  # somebody who has not given up
                waiting.put(message)
        with self._lock:
            self._is_over = True
        self._hello.put(None)
        for waiting in list(self._answers.values()):
            waiting.put(None)
        self._on_event(self.name, {"event": "lost"})

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[1 - KEPT_LINES :], line.strip()]

    def explain_loss(self) -> ChannelLost:
        """Returns the error for a connection that is gone."""
        self._process.wait()
        self._error_reader.join(timeout=2)
        last = next((line for line in reversed(self._errors) if line), f"exit code {self._process.returncode}")
        remedy = next(
            (advice for words, advice in SSH_REMEDIES.items() if any(words in line for line in self._errors)), ""
        )
        return ChannelLost(f"The connection to {self.name} is gone: {last.rstrip('.')}.", remedy)

    def close(self) -> None:
        """Ends the agent and all that it has started."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def open_channels(
    hosts: Sequence[Host | None],
    ssh: Sequence[str],
    python: str = sys.executable,
    on_event: OnEvent = lambda name, event: None,
) -> list[AgentChannel]:
    """Starts the agents of all hosts at once. The caller waits for their hellos, and closes them."""
    return [
        AgentChannel("this machine" if host is None else host.name, make_agent_command(host, ssh, python), on_event)
        for host in hosts
    ]


def ask_all(
    channels: Sequence[AgentChannel], action: str, seconds: float, arguments: Sequence[Mapping[str, JsonValue]]
) -> list[JsonValue | LockstepError]:
    """Asks all hosts at once; returns each one's result or error."""

    def ask(channel: AgentChannel, own: Mapping[str, JsonValue]) -> JsonValue | LockstepError:
        try:
            return channel.ask(action, seconds, **own)
        except LockstepError as error:
            return error

    with ThreadPoolExecutor(max(1, len(channels))) as pool:
        return list(pool.map(ask, channels, arguments))


def _parse(line: str) -> dict[str, JsonValue] | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
