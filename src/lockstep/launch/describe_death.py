"""Says in one sentence how a worker died, with what the system, its heartbeat and its own last words tell."""

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from lockstep.heartbeat import Heartbeat
from lockstep.launch.describe_stall import name_place
from lockstep.launch.memory_kills import MemoryKills
from lockstep.launch.supervisor import ChildProcess

LOG_BYTES = 50_000
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


@dataclass(frozen=True)
class Death:
    """`evidence` is about the cause: established, supported or unknown."""

    rank: int
    evidence: str
    sentence: str
    phase: str = ""
    step: int = 0


def describe_death(
    child: ChildProcess, kills: MemoryKills, beat: Heartbeat | None = None, logs: Path | None = None
) -> Death:
    """Returns how a child died that did not report a mistake of the user. `logs` is the run's folder of that name."""
    reported = child.read_error()
    place = "" if beat is None else f" in {name_place(beat)}"
    begin, code = f"{child.describe_exit()}{place}", child.exit_code
    phase, step = ("", 0) if beat is None else (beat.phase, beat.step)
    evidence = "established"
    if reported is not None:
        sentence = f"{begin}: {reported.error.message}"
    elif code == -signal.SIGKILL:
        evidence, why = _explain_kill(kills.judge(child.process.pid))
        sentence = f"{begin}, {why}"
    elif code is not None and code > 0:
        evidence, sentence = "supported", f"{begin} and did not say why: its code called exit({code})"
    else:
        log = _name_log(child)
        line = _find_crash_line(logs / log) if logs is not None and -(code or 0) in CRASHES else ""
        sentence = f"{begin}{f', at {line}' * bool(line)}; see logs/{log} in the run folder"
    return Death(child.rank, evidence, f"{sentence} ({evidence}).", phase, step)


def _explain_kill(judgement: str) -> tuple[str, str]:
    """Returns the evidence, and the end of a sentence about a SIGKILL."""
    if judgement in ("established", "supported"):
        return judgement, "by the kernel because memory ran out"
    if judgement == "no":
        return "supported", "which a person or a program sent: the kernel has killed nothing for lack of memory"
    return "unknown", "by somebody, or by the kernel because memory ran out"


def _name_log(child: ChildProcess) -> str:
    kind, number = child.name.lower().split()
    return f"{kind}-{int(number):04d}.log"


def _find_crash_line(log: Path) -> str:
    """Returns the innermost Python line of the crash that `faulthandler` wrote last."""
    try:
        text = log.read_bytes()[-LOG_BYTES:].decode(errors="replace")
    except OSError:
        return ""
    _, is_found, crash = text.rpartition("Current thread ")
    line = re.search(r'^ +File "([^"]+)", line (\d+) in (\S+)', crash, re.MULTILINE) if is_found else None
    return f"{line[3]} ({Path(line[1]).name}:{line[2]})" if line else ""
