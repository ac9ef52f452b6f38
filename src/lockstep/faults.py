"""Fault injection for tests: named points at which a worker can be made to fail. Without LOCKSTEP_FAULT a point costs
one check of an empty list.

`LOCKSTEP_FAULT=kill:rank=1:phase=merge:step=7` kills rank 1 every time it reaches that point; with `restarts=0`, only
before its first restart. Several faults are separated by commas.
Actions: `kill` (SIGKILL), `stop` (SIGSTOP), `term` (SIGTERM), `segv` (SIGSEGV), `abort` (SIGABRT), `orphan` (kills the
parent process, and waits for its own end), `loop` (computes for ever), `sleep` (sleeps for ever), `gil` (sleeps for
ever and never releases the interpreter), `nan` (the caller sets its gradient to NaN), `skip` (with `phase=merge` or
`phase=agree`: the caller leaves an exchange out), `memory` (takes a GiB and keeps it), `error` (raises), `slow`
(`slow:phase=backward:rank=1:times=3` makes computation, or with `phase=input` the input, take three times as long;
`ms=100` makes it take 0.1 s longer).
"""

import ctypes
import os
import signal
import time
from dataclasses import dataclass

from lockstep.run import environment_variables

PHASES = (
    "input",
    "forward",
    "micro",
    "backward",
    "merge",
    "update",
    "agree",
    "serve",
    "evaluate",
    "begin",
    "write",
    "save",
    "parts",
    "rename",
    "renamed",
    "gradient",
    "cleaned",
    "vocabulary",
    "encoded",
    "joined",
    "upload",
    "commit",
    "receive",
)
_SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "term": signal.SIGTERM,
    "segv": signal.SIGSEGV,
    "abort": signal.SIGABRT,
}
_HANGS = ("loop", "sleep", "gil")
_OTHERS = ("orphan", "nan", "skip", "memory", "error", "slow")


@dataclass
class Fault:
    """One fault of LOCKSTEP_FAULT. A rank, step or number of restarts that is None matches all."""

    action: str
    phase: str
    rank: int | None = None
    step: int | None = None
    restarts: int | None = None
    times: int = 1
    ms: int = 0


def parse(text: str) -> list[Fault]:
    """Returns the faults of a LOCKSTEP_FAULT value."""
    faults = []
    for part in filter(None, text.split(",")):
        action, *pairs = part.split(":")
        values = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
        numbers = {
            key: int(value)
            for key, value in values.items()
            if key in ("rank", "step", "restarts", "times", "ms") and value.isdigit()
        }
        is_valid = action in (*_SIGNALS, *_HANGS, *_OTHERS) and values.get("phase") in PHASES
        if not is_valid or len(numbers) + 1 != len(pairs):
            raise ValueError(f"LOCKSTEP_FAULT: cannot read {part!r}")
        faults.append(Fault(action, values["phase"], **numbers))
    return faults


_faults = parse(environment_variables.faults())
_current_step = 0
_taken: list[bytes] = []


def set_step(number: int) -> None:
    """Sets the step that is being computed."""
    global _current_step
    _current_step = number


def at(phase: str, step: int | None = None) -> str | None:
    """Marks a point, and injects the faults that match it. Returns the action when the caller has to carry it out. Code
    that runs in the background, like an upload, passes the step it belongs to."""
    if not _faults:
        return None
    rank, now = environment_variables.rank(), _current_step if step is None else step
    for fault in _faults:
        matches = fault.phase == phase and fault.rank in (None, rank) and fault.step in (None, now)
        if matches and fault.restarts in (None, environment_variables.restarts()):
            if fault.action in _SIGNALS:
                os.kill(os.getpid(), _SIGNALS[fault.action])
            elif fault.action == "orphan":
                os.kill(os.getppid(), signal.SIGKILL)
                _hang("sleep")
            elif fault.action in _HANGS:
                _hang(fault.action)
            elif fault.action == "memory":
                _taken.append(b"x" * 2**30)
            elif fault.action == "error":
                raise RuntimeError(f"fault injected at {phase}, step {_current_step}")
            elif fault.action != "slow":
                return fault.action
    return None


def _hang(how: str) -> None:
    """Never returns."""
    while True:
        if how == "gil":
            ctypes.PyDLL(None).sleep(3600)
        elif how == "sleep":
            time.sleep(3600)


def slow(phase: str, seconds: float) -> None:
    """Sleeps if a fault slows this phase, which took `seconds`."""
    rank = environment_variables.rank() if _faults else 0
    for fault in _faults:
        matches = fault.action == "slow" and fault.phase == phase and fault.rank in (None, rank)
        if matches and fault.restarts in (None, environment_variables.restarts()):
            time.sleep((fault.times - 1) * seconds + fault.ms / 1000)
