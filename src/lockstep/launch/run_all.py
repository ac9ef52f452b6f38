"""Programs that run at the same time and end together, whatever ends this one."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

from lockstep.launch.supervisor import heard

TIED = ["setpriv", "--pdeathsig", "KILL"]
"""Before a command, where there is such a program: the kernel kills it when its starter dies, by whatever."""
GRACE_SECONDS = 10.0
"""After one has failed, the others may find out by themselves before they are killed."""
LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Program:
    command: Sequence[str]
    environment: dict[str, str]


def together(programs: Sequence[Program], meanwhile: Callable[[], None] = lambda: None) -> str:
    """Runs them and waits, calling `meanwhile` now and then; returns what the first that failed says. A signal to stop
    kills them all, and then ends this process with the signal's exit code."""
    with ExitStack() as stack:
        signals = stack.enter_context(heard())
        said = [stack.enter_context(tempfile.TemporaryFile("w+", errors="replace")) for _ in programs]
        processes: list[subprocess.Popen[bytes]] = []
        stack.callback(_kill, processes)
        for program, errors in zip(programs, said, strict=True):
            processes.append(_start(program, errors))
        failed: list[int] = []  # in the order of their ends
        deadline = float("inf")
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            if signals:
                sys.exit(128 + signals[0])
            meanwhile()
            time.sleep(LOOK_SECONDS)
            failed += [i for i, process in enumerate(processes) if process.poll() and i not in failed]
            if failed and deadline == float("inf"):
                deadline = time.monotonic() + GRACE_SECONDS
        failed += [i for i, process in enumerate(processes) if process.poll() and i not in failed]
        texts = [_text(said[i]) for i in failed]
    return next((text for text in texts if text), "it said nothing") if failed else ""


def _start(program: Program, errors: IO[str]) -> "subprocess.Popen[bytes]":
    """In a session of its own: Ctrl-C reaches this process, which decides."""
    tied = TIED if shutil.which(TIED[0]) else []
    environment = os.environ | program.environment
    return subprocess.Popen(
        [*tied, *program.command], env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
    )


def _kill(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


def _text(errors: IO[str]) -> str:
    """What a program says of its failure: the sentence of a Lockstep error, else its last lines."""
    errors.seek(0)
    lines = errors.read().strip().splitlines()
    for line, remedy in zip(lines, [*lines[1:], ""], strict=False):
        if line.startswith("Error: "):
            return f"{line.removeprefix('Error: ')} {remedy.strip()}".strip()
    return "\n".join(lines[-5:])
