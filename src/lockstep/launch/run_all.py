"""Runs several programs at the same time. When this process ends for any reason, they end too."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

from lockstep.launch.supervisor import ChildProcess, Supervisor

DIE_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]
"""Put before a command, where the program exists: the kernel kills the command when this process dies."""
GRACE_SECONDS = 10.0
"""How long the other programs may take to end by themselves after one has failed."""
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Program:
    command: Sequence[str]
    environment: dict[str, str]
    inherits: bool = True  # whether it is added to that of this process


def run_all(programs: Sequence[Program], on_poll: Callable[[], None] = lambda: None) -> str:
    """Runs the programs and waits, calling `on_poll` several times a second. Returns the error message of the first one
    that failed, or an empty string. A stop signal kills all of them and ends this process with the signal's exit code."""
    with ExitStack() as stack:
        supervisor = stack.enter_context(Supervisor(0, POLL_SECONDS, on_poll))
        errors: dict[ChildProcess, IO[str]] = {}
        for program in programs:
            file = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
            errors[supervisor.watch(_start(program, file))] = file
        failed: list[ChildProcess] = []
        for child in supervisor.exits():
            if child.exit_code != 0:
                failed.append(child)
                supervisor.end_within(GRACE_SECONDS)
        if supervisor.signals:
            sys.exit(128 + supervisor.signals[0])
        messages = [_read_message(errors[child]) for child in failed]
    return next((message for message in messages if message), "it said nothing") if failed else ""


def _start(program: Program, errors: IO[str]) -> ChildProcess:
    """Starts the program in a separate session: Ctrl-C reaches only this process."""
    prefix = DIE_WITH_PARENT if shutil.which(DIE_WITH_PARENT[0]) else []
    environment = {**(os.environ if program.inherits else {}), **program.environment}
    process = subprocess.Popen(
        [*prefix, *program.command], env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
    )
    return ChildProcess(program.command[0], process)


def _read_message(errors: IO[str]) -> str:
    """Returns the sentence of a Lockstep error in a program's output, or the last lines of the output."""
    errors.seek(0)
    lines = errors.read().strip().splitlines()
    for line, remedy in zip(lines, [*lines[1:], ""], strict=False):
        if line.startswith("Error: "):
            return f"{line.removeprefix('Error: ')} {remedy.strip()}".strip()
    return "\n".join(lines[-5:])
