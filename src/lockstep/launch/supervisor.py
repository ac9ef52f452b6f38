"""Watches child processes: learns how each one ends, passes stop signals on and leaves no process behind.

`fixed`, `elastic` and `run_all` start different processes and decide differently what an exit means. All three watch their
processes with the `Supervisor` of this module.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple, Protocol, Self

from lockstep.errors import LockstepError

POLL_SECONDS = 0.05
RESUME = "Start the same command again: it continues from the last checkpoint."


class ReportedError(NamedTuple):
    """What a process wrote about its own failure."""

    kind: str  # "lost": another worker went away; "port": the port is taken; "memory": it ran out; "error": all others
    error: LockstepError


class ProcessHandle(Protocol):
    """What a supervisor needs of a process: the part of `subprocess.Popen` that `ForkedProcess` has too."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...
    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...
    def wait(self) -> int: ...


@dataclass(eq=False)
class ChildProcess:
    """A process under supervision."""

    name: str  # in messages, for example "Worker 1"
    process: ProcessHandle
    rank: int = 0
    error_file: Path | None = None  # where the process may report why it fails
    is_helper: bool = False  # a helper gets no stop signals, and nothing waits for its end

    @property
    def exit_code(self) -> int | None:
        """The exit code, the negative number of the signal that killed the process, or None while it runs."""
        return self.process.returncode

    def read_error(self) -> ReportedError | None:
        """Returns what the process reported in its error file, if it did."""
        if self.error_file is None:
            return None
        try:
            facts = json.loads(json.loads(self.error_file.read_text(encoding="utf-8"))["message"])
            return ReportedError(facts["kind"], LockstepError(facts["message"], facts["remedy"], facts["code"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def describe_exit(self) -> str:
        assert self.exit_code is not None, f"{self.name} is still running"
        return describe_exit(self.name, self.process.pid, self.exit_code)


def describe_exit(name: str, pid: int, exit_code: int) -> str:
    """Returns the beginning of a sentence, for example "Worker 1 (process 4242) was killed by SIGKILL"."""
    how = f"was killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with exit code {exit_code}"
    return f"{name} (process {pid}) {how}"


class Supervisor:
    """Watches child processes for the duration of a `with` block. Leaving the block kills those that still run.

    SIGTERM, SIGINT and SIGHUP do not end this process inside the block. The first of them is passed on to the children,
    which then have `stop_seconds` to end. SIGHUP stays ignored where nohup made it so.
    """

    def __init__(
        self, stop_seconds: float, poll_seconds: float = POLL_SECONDS, on_poll: Callable[[], None] = lambda: None
    ) -> None:
        self.children: list[ChildProcess] = []  # that run, as far as is known
        self.signals: list[int] = []  # stop signals in the order of their arrival
        self.is_stopping = False  # the children were asked to end
        self._stop_seconds, self._poll_seconds, self._on_poll = stop_seconds, poll_seconds, on_poll
        self._deadline = float("inf")

    def __enter__(self) -> Self:
        def remember(number: int, frame: FrameType | None) -> None:
            self.signals.append(number)

        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        self._handlers = {number: signal.signal(number, remember) for number in numbers}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self.children:
            child.process.kill()
        for child in self.children:
            child.process.wait()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def watch(self, child: ChildProcess) -> ChildProcess:
        """Adds a running process to those that are watched, and returns it."""
        self.children.append(child)
        return child

    def end_within(self, seconds: float) -> None:
        """Limits how long `exits` waits for the remaining children. An earlier limit stays."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def ask_to_stop(self, number: int = signal.SIGTERM) -> None:
        """Sends a stop signal to the children, which then have `stop_seconds` to end."""
        self.is_stopping = True
        for child in self.children:
            if not child.is_helper:
                child.process.send_signal(number)
        self.end_within(self._stop_seconds)

    def exits(self) -> Iterator[ChildProcess]:
        """Yields every child when it has ended, until only helpers are left or the time limit has passed. Children that
        are added meanwhile are watched too."""
        is_passed_on = False
        while any(not child.is_helper for child in self.children) and time.monotonic() < self._deadline:
            self._on_poll()
            if self.signals and not is_passed_on:
                is_passed_on = True
                self.ask_to_stop(self.signals[0])
            ended = [child for child in self.children if child.process.poll() is not None]
            for child in ended:
                self.children.remove(child)
                yield child
            if not ended:
                time.sleep(self._poll_seconds)
