"""Runs one trial: trains, makes the fault, and listens to what is said about it."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypedDict

from fault_cases.cases import FAULT_STEP, Case
from fault_cases.places import CannotBeMade, Place, Process

ACCUSATION = re.compile(r"^(Error: )?(Host \S+?: )?(Error: |Workers? \d|Host \S+ \(|The |Stopped .* got SIG)")
"""How a sentence begins that says what went wrong."""
NO_ACCUSATION = re.compile(r"lost the connection to another|continues?\.$|as the others again|heard again|^The report")
"""A lost connection is what everybody sees: it says neither who nor why."""
START_SECONDS = 180.0
GRACE_SECONDS = 30.0
LINGER_SECONDS = 8.0
"""Monitors of hosts speak for some seconds after the last worker is gone."""


class Named(TypedDict):
    sentence: str
    seconds: float  # after the fault


class Result(TypedDict):
    named: list[Named]
    exit_code: int | None  # None: it was stopped
    step_seconds: float  # of the steps before the fault
    cannot: str  # why the fault could not be made


@dataclass(frozen=True)
class TrialSettings:
    words: Sequence[str]  # config and settings
    control_seconds: float


class Journal:
    """What the journal of worker 0 says while it is written."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "journal"

    def find_workers(self) -> list[int]:
        """Returns the process ids of both workers; none before both have begun."""
        pids = []
        for path in sorted(self._folder.glob("worker-*.jsonl")):
            with path.open() as file:
                first = file.readline()
            pids.append(int(json.loads(first)["pid"]) if first.endswith("\n") else 0)
        return pids if len(pids) == 2 and all(pids) else []

    def read_steps(self) -> list[tuple[int, float]]:
        """Returns number and end of every step."""
        try:
            text = (self._folder / "worker-0000.jsonl").read_text()
        except FileNotFoundError:
            return []
        lines = [
            line for line in text.splitlines(keepends=True) if line.startswith('{"kind":"step"') and line[-1] == "\n"
        ]
        return [(line["step"], line["time"]) for line in map(json.loads, lines)]


def run_trial(case: Case, settings: TrialSettings) -> Result:
    """Trains once; returns what was said, and when. A control trial is stopped after `control_seconds`."""
    try:
        with case.place() as place, tempfile.TemporaryFile("w+") as errors:
            fault = f"{case.inside}:rank=1:step={FAULT_STEP}:restarts=0" if case.inside else ""
            words = [*settings.words, *case.settings]
            processes = place.start(words, {"LOCKSTEP_FAULT": fault, "PYTHONUNBUFFERED": "1"}, errors)
            try:
                return _follow(case, place, processes, errors, settings)
            finally:
                place.heal()
                _end(processes, signal.SIGKILL)
    except CannotBeMade as error:
        return {"named": [], "exit_code": None, "step_seconds": 0.0, "cannot": str(error)}


def _follow(case: Case, place: Place, processes: list[Process], errors: IO[str], settings: TrialSettings) -> Result:
    journal, listener = Journal(place.run), Listener(errors)
    fault_time, step_seconds, workers = 0.0, 0.0, list[int]()
    deadline = time.time() + START_SECONDS
    while time.time() < deadline and any(process.poll() is None for process in processes):
        listener.listen()
        if not workers:
            workers = journal.find_workers()
            if workers:
                place.settle(workers)
        elif not fault_time:
            steps = journal.read_steps()
            if steps and steps[-1][0] >= FAULT_STEP - 1:
                step_seconds = (steps[-1][1] - steps[0][1]) / max(1, len(steps) - 1)
                fault_time = steps[FAULT_STEP - 2][1] if case.inside else time.time()
                place.inject(workers)
                deadline = time.time() + (settings.control_seconds if case.is_control else place.end_seconds)
        elif case.settings and not case.is_control and listener.heard:
            break
        elif listener.heard:
            place.heal()
        time.sleep(0.05)
    place.heal()
    code = None
    if case.settings:
        _end(processes, signal.SIGTERM if case.is_control else signal.SIGKILL)
    else:
        code = _wait(processes)
    last_words = time.time() + (0.0 if case.is_control else LINGER_SECONDS)
    listener.listen()
    while not listener.heard and time.time() < last_words:
        time.sleep(0.1)
        listener.listen()
    named: list[Named] = [{"sentence": text, "seconds": round(when - fault_time, 1)} for text, when in listener.heard]
    return {"named": named, "exit_code": code, "step_seconds": round(step_seconds, 3), "cannot": ""}


class Listener:
    """Collects the sentences that accuse somebody, each with the moment at which it was heard."""

    def __init__(self, errors: IO[str]) -> None:
        self.heard: list[tuple[str, float]] = []
        self._errors, self._place, self._rest = errors, 0, ""

    def listen(self) -> None:
        """Reads what was written since the last call. The programs write to the same file at its end."""
        new = os.pread(self._errors.fileno(), 1 << 24, self._place)
        self._place += len(new)
        *lines, self._rest = (self._rest + new.decode(errors="replace")).split("\n")
        for line in lines:
            if ACCUSATION.search(line) and not NO_ACCUSATION.search(line):
                self.heard.append((line.strip(), time.time()))


def _wait(processes: list[Process]) -> int | None:
    """Returns the exit code of the training when it ends by itself soon."""
    with suppress(subprocess.TimeoutExpired):
        return max((process.wait(GRACE_SECONDS) for process in processes), key=abs)
    return None


def _end(processes: list[Process], number: signal.Signals) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)
    for process in processes:
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
