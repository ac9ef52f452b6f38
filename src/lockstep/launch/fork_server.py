"""Starts processes by forking one that has already imported torch, the fork server.

Importing torch takes a second of CPU time and more than 100 MB. With a fork server a launch pays for that once and not once
per worker. The launcher starts the fork server, `python -m lockstep.launch.fork_loop`, and talks to it over a pipe.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from lockstep.errors import LockstepError
from lockstep.launch.supervisor import RESUME, ChildProcess, describe_exit


class Target(NamedTuple):
    """A module to run in a forked process. It has a function `main`, which gets the arguments. The target of a fork server
    also has a function `preload`, which gets the same arguments and imports what `main` will need."""

    module: str
    arguments: tuple[str, ...]


class StartRequest(NamedTuple):
    number: int  # the launcher's name for the new process
    target: Target
    environment: dict[str, str]  # added to that of the fork server
    delay_seconds: float  # how long the new process sleeps before it runs the target


class SignalRequest(NamedTuple):
    number: int  # of the process
    signal: int


class Started(NamedTuple):
    number: int
    pid: int


class Exited(NamedTuple):
    number: int
    exit_code: int  # negative: the signal that killed the process


class ForkedProcess:
    """A child of a fork server. It can be polled, signalled and waited for like a `subprocess.Popen`."""

    def __init__(self, server: "ForkServer", number: int) -> None:
        self.pid = 0  # until the fork server has started it
        self.returncode: int | None = None
        self._server, self._number = server, number

    def poll(self) -> int | None:
        """Returns the exit code, or None while the process runs. Raises an error if the fork server died."""
        self._server.update()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            self._server.send(SignalRequest(self._number, number))

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Waits until the process has ended and returns its exit code."""
        while self.returncode is None:
            self._server.receive()
        return self.returncode


class ForkServer:
    """A fork server as the launcher sees it. The fork server and all its children die when the launcher dies.

    `environment` is added to the environment before the fork server imports anything.
    """

    def __init__(self, target: Target, environment: Mapping[str, str]) -> None:
        self._target = target
        self._processes: list[ForkedProcess] = []
        self._is_ready = self._is_cancelled = self._is_dead = False
        self._failure: LockstepError | None = None
        self._pipe, remote_end = Pipe()
        with remote_end:
            # OpenBLAS would start threads when numpy is imported, and a process with threads cannot be forked safely.
            own = {"LOCKSTEP_LAUNCHER": str(os.getpid()), "OPENBLAS_NUM_THREADS": "1"}
            self._server = subprocess.Popen(
                [sys.executable, "-m", "lockstep.launch.fork_loop", str(remote_end.fileno()), *_flatten(target)],
                env=os.environ | environment | own,
                pass_fds=[remote_end.fileno()],
                stderr=sys.stderr.fileno(),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.kill()
        self._server.wait()
        self._pipe.close()

    def start(self, target: Target, environment: Mapping[str, str], delay_seconds: float = 0.0) -> ForkedProcess:
        """Asks for a new process that calls `main` of the target, in a separate session: Ctrl-C reaches only the
        launcher."""
        process = ForkedProcess(self, len(self._processes))
        self._processes.append(process)
        self.send(StartRequest(len(self._processes) - 1, target, dict(environment), delay_seconds))
        return process

    def start_worker(
        self,
        rank: int,
        workers: int,
        environment: Mapping[str, str],
        folder: Path,
        delay_seconds: float = 0.0,
        place: int | None = None,
    ) -> ChildProcess:
        """Starts one worker, or a server if its rank is not below `workers`. It may report why it fails in `folder`.
        `place` is its LOCAL_RANK if that is not its rank."""
        error_file = folder / f"{rank}.json"
        error_file.unlink(missing_ok=True)
        local_rank = rank if place is None else place
        own = {"RANK": str(rank), "LOCAL_RANK": str(local_rank), "TORCHELASTIC_ERROR_FILE": str(error_file)}
        name = f"Worker {rank}" if rank < workers else f"Server {rank - workers}"
        process = self.start(self._target, {**environment, **own}, delay_seconds)
        return ChildProcess(name, process, rank, error_file)

    def send(self, request: StartRequest | SignalRequest) -> None:
        """Sends a request. A signal ends a fork server that is still importing, and with it every process to come."""
        self._read_messages()
        if isinstance(request, SignalRequest) and not self._is_ready:
            self._is_cancelled = True
            self._server.terminate()
            return
        with suppress(OSError):  # if the fork server has died, the next update raises an error
            self._pipe.send(request)

    def update(self) -> None:
        """Notes which processes have started and ended. Raises an error if the fork server died."""
        self._read_messages()
        if self._failure is not None:
            raise self._failure

    def _read_messages(self) -> None:
        while not self._is_dead and self._pipe.poll():
            self.receive()

    def receive(self) -> None:
        """Waits for one message from the fork server, or for its death."""
        try:
            message = self._pipe.recv()
        except (EOFError, OSError):
            self._handle_death(self._server.wait())
            return
        self._is_ready = True
        process = self._processes[message.number]
        if isinstance(message, Started):
            process.pid = message.pid
        else:
            process.returncode = message.exit_code

    def _handle_death(self, exit_code: int) -> None:
        self._is_dead = True
        if not self._is_cancelled:
            how = describe_exit("The process that starts the workers", self._server.pid, exit_code)
            self._failure = LockstepError(f"{how}, and the workers ended with it.", RESUME)
        for process in self._processes:
            if process.returncode is None:
                process.returncode = -signal.SIGTERM if self._is_cancelled else -signal.SIGKILL


def _flatten(target: Target) -> list[str]:
    return [target.module, *target.arguments]
