"""Named points where a test can make a worker fail. Without LOCKSTEP_FAULT a point is one look at an empty list.

`LOCKSTEP_FAULT=kill:rank=1:phase=merge:step=7` kills rank 1 when it reaches that point, as often as it does; with
`restarts=0` only before it was started again. Several are joined by commas.
Actions: `kill` (SIGKILL), `stop` (SIGSTOP), `term` (SIGTERM), `nan` (the caller spoils its gradient), `error` (raises),
`slow` (`slow:phase=backward:rank=1:times=3` makes computing, or with `phase=input` the input, three times as long;
`ms=100` instead makes it a tenth of a second longer).
"""

import os
import signal
import time
from dataclasses import dataclass

from lockstep.parent import restarts

PHASES = (
    "input",
    "forward",
    "micro",
    "backward",
    "merge",
    "update",
    "serve",
    "evaluate",
    "save",
    "rename",
    "renamed",
    "gradient",
    "cleaned",
    "vocabulary",
    "encoded",
    "joined",
    "upload",
    "commit",
)
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}


@dataclass
class Fault:
    action: str
    phase: str
    rank: int | None = None
    step: int | None = None
    restarts: int | None = None
    times: int = 1
    ms: int = 0


def parse(text: str) -> list[Fault]:
    """The faults that a LOCKSTEP_FAULT value asks for."""
    faults = []
    for part in filter(None, text.split(",")):
        action, *pairs = part.split(":")
        values = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
        numbers = {
            key: int(value)
            for key, value in values.items()
            if key in ("rank", "step", "restarts", "times", "ms") and value.isdigit()
        }
        understood = action in (*_SIGNALS, "nan", "error", "slow") and values.get("phase") in PHASES
        if not understood or len(numbers) + 1 != len(pairs):
            raise ValueError(f"LOCKSTEP_FAULT: cannot read {part!r}")
        faults.append(Fault(action, values["phase"], **numbers))
    return faults


_faults = parse(os.environ.get("LOCKSTEP_FAULT", ""))
_now = 0


def step(number: int) -> None:
    """Tells the points which step is being computed."""
    global _now
    _now = number


def at(phase: str, step: int | None = None) -> str | None:
    """Marks a point; returns the action when the caller has to carry it out itself. What runs beside the training
    (an upload) says itself which step it belongs to."""
    if not _faults:
        return None
    rank, now = int(os.environ.get("RANK", "0")), _now if step is None else step
    for fault in _faults:
        here = fault.phase == phase and fault.rank in (None, rank) and fault.step in (None, now)
        if here and fault.restarts in (None, restarts()):
            if fault.action in _SIGNALS:
                os.kill(os.getpid(), _SIGNALS[fault.action])
            elif fault.action == "error":
                raise RuntimeError(f"fault injected at {phase}, step {_now}")
            elif fault.action != "slow":
                return fault.action
    return None


def slow(phase: str, seconds: float) -> None:
    """Makes what took `seconds` take longer, where a fault asks for it."""
    rank = int(os.environ.get("RANK", "0")) if _faults else 0
    for fault in _faults:
        here = fault.action == "slow" and fault.phase == phase and fault.rank in (None, rank)
        if here and fault.restarts in (None, restarts()):
            time.sleep((fault.times - 1) * seconds + fault.ms / 1000)
