"""The programs that an agent runs for a command, whose output it sends line by line."""

import fcntl
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.hosts.process_tree import kill_descendants
from lockstep.launch.run_all import DIE_WITH_PARENT
from lockstep.monitor_folder import is_locked, remove_job_folder

Send = Callable[[Mapping[str, object]], None]
MOST_CHARACTERS = 4_000
"""Of a line. What is longer comes as several lines."""
DRAIN_SECONDS = 1.0
"""How long output may still come from a program that has ended. Its own children may hold the pipes longer."""


class TemporaryFolder:
    """A folder for temporary files. Those of agents that were killed are removed first: nobody holds their locks."""

    def __init__(self) -> None:
        parent = Path(tempfile.gettempdir())
        for path in parent.glob("lockstep-agent-*"):
            if path.lstat().st_uid == os.getuid() and not is_locked(path / "lock"):
                shutil.rmtree(path, ignore_errors=True)
        hidden = Path(tempfile.mkdtemp(prefix=".lockstep-agent-"))  # until it is locked
        self._lock = (hidden / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = hidden.rename(parent / hidden.name.removeprefix("."))


class Programs:
    """Starts programs and tells what they print and how they end: as events, which answer no request."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._temporary: TemporaryFolder | None = None
        self._runs: set[str] = set()

    def start(
        self, name: str, words: list[str], variables: dict[str, str], folder: str, run: str | None = None
    ) -> JsonValue:
        """Starts a program in a folder, which is made if it does not exist. Returns its process number. If it trains a
        `run`, what its workers keep in memory is removed at the end."""
        if name in self._running:
            raise LockstepError(f"{name} runs already.")
        Path(folder).mkdir(parents=True, exist_ok=True)
        if self._temporary is None:
            self._temporary = TemporaryFolder()
        variables = {"TMPDIR": str(self._temporary.path), **variables}
        self._runs |= set() if run is None else {run}
        started: list[subprocess.Popen[str] | OSError] = []
        is_started = threading.Event()

        def work() -> None:
            """The kernel kills the program when the thread that has started it ends, so this one waits for it."""
            try:
                process = _open(words, variables, folder)
            except OSError as error:
                started.append(error)
                is_started.set()
                return
            started.append(process)
            self._running[name] = process
            is_started.set()
            self._follow(name, process)

        threading.Thread(target=work, daemon=True).start()
        is_started.wait()
        (process,) = started
        if isinstance(process, OSError):
            raise process
        return process.pid

    def end(self) -> None:
        """Ends all programs and what they have started, and removes their temporary files, also those in memory."""
        kill_descendants()
        for run in self._runs:
            remove_job_folder(run)
        if self._temporary is not None:
            shutil.rmtree(self._temporary.path, ignore_errors=True)

    def _follow(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        pipes = {"stdout": process.stdout, "stderr": process.stderr}
        readers = [threading.Thread(target=self._read, args=(name, *item), daemon=True) for item in pipes.items()]
        for reader in readers:
            reader.start()
        code = process.wait()
        for reader in readers:
            reader.join(DRAIN_SECONDS)
        del self._running[name]
        self._send({"event": "end", "program": name, "code": code})

    def _read(self, name: str, stream: str, pipe: IO[str]) -> None:
        while line := pipe.readline(MOST_CHARACTERS):
            self._send({"event": "line", "program": name, "stream": stream, "text": line.rstrip("\n")})

    def signal(self, name: str, number: int) -> JsonValue:
        """Sends a signal to a program, not to what it has started. Returns whether it still runs."""
        process = self._running.get(name)
        if process is not None:
            with suppress(ProcessLookupError):
                process.send_signal(number)
        return process is not None

    def end_children(self, name: str) -> JsonValue:
        """Kills the processes that a program has started itself. Returns how many there were."""
        import psutil

        process = self._running.get(name)
        children: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            children = [] if process is None else psutil.Process(process.pid).children()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        return len(children)


def _open(words: list[str], variables: Mapping[str, str], folder: str) -> subprocess.Popen[str]:
    """The program starts in a new session, so a signal reaches only the program, which forwards it to its children."""
    prefix = DIE_WITH_PARENT if shutil.which(DIE_WITH_PARENT[0]) else []
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*prefix, *words],
        env=os.environ | variables,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
