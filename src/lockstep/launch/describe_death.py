"""Says in one sentence how a worker died, with what the system, its heartbeat and its own last words tell."""

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.heartbeat import Heartbeat
from lockstep.launch.describe_stall import name_place
from lockstep.launch.memory_kills import MemoryKills
from lockstep.launch.supervisor import ChildProcess

LOG_BYTES = 50_000
MOST_CHARACTERS = 120
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)

LATE_PEER = "another worker stood still or is gone, or the network between them failed"
_WATCHDOG = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\(.*?OpType=(\w+).*?\) ran for (\d+) milliseconds"
)


@dataclass(frozen=True)
class Death:
    """`evidence` is about the cause: established, supported or unknown."""

    rank: int
    evidence: str
    sentence: str
    phase: str = ""
    step: int = 0


@dataclass(frozen=True)
class Crash:
    """What is known of a crash in C++."""

    line: str = ""  # the innermost one of Python
    text: str = ""  # of the exception
    is_late_peer: bool = False  # the watchdog of NCCL ended the process

    @property
    def is_mismatch(self) -> bool:
        """Did Gloo get data of another exchange?"""
        return "match expected size" in self.text or "preamble" in self.text


def describe_death(
    child: ChildProcess, kills: MemoryKills, beats: Mapping[int, Heartbeat], logs: Path | None = None
) -> Death:
    """Returns how a child died that did not report a mistake of the user. `beats` are the last ones of all workers, `logs`
    is the run's folder of that name."""
    reported, beat = child.read_error(), beats.get(child.rank)
    begin, code = f"{child.describe_exit()}{'' if beat is None else f' in {name_place(beat)}'}", child.exit_code
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
        crash = _read_crash(logs / log) if logs is not None and -(code or 0) in CRASHES else Crash()
        if crash.is_mismatch and beat is not None:
            return _describe_mismatch(child.rank, begin, beat, beats)
        if crash.is_late_peer:
            evidence = "supported"
        at, text = f", at {crash.line}" * bool(crash.line), f": {crash.text}" * bool(crash.text)
        sentence = f"{begin}{at}{text}; see logs/{log} in the run folder"
    return Death(child.rank, evidence, f"{sentence} ({evidence}).", phase, step)


def _describe_mismatch(rank: int, begin: str, beat: Heartbeat, beats: Mapping[int, Heartbeat]) -> Death:
    """A worker got data of another exchange than its own. The one that is ahead of all others skipped an exchange."""
    died = f"{begin}, because it got data of another exchange"
    *others, (place, culprit) = sorted(((one.step, one.count), other) for other, one in beats.items())
    if not others or others[-1][0] == place:
        return Death(rank, "unknown", f"{died}: some worker skipped one (which one is unknown).", beat.phase, beat.step)
    where = f"it is ahead of the others, in {name_place(beats[culprit])}"
    if culprit == rank:
        sentence = f"{died}: {where}, so it skipped an exchange (supported)."
    else:
        sentence = f"Worker {culprit} skipped an exchange: {where}. {died} (supported)."
    return Death(culprit, "supported", sentence, beat.phase, beat.step)


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


def _read_crash(log: Path) -> Crash:
    """Reads what C++ and `faulthandler` wrote about the last crash. A thread without Python has no lines of its own: then
    those of the main thread, which is the last one, count."""
    try:
        text = log.read_bytes()[-LOG_BYTES:].decode(errors="replace")
    except OSError:
        return Crash()
    before, is_found, stacks = text.rpartition("Fatal Python error")
    late = _WATCHDOG.findall(text)
    if late:
        kind, milliseconds = late[-1]
        why = f"torch's watchdog of NCCL ended it, because its {kind} was not complete after"
        return Crash(text=f"{why} {int(milliseconds) / 1000:.0f} s: {LATE_PEER}", is_late_peer=True)
    if not is_found:
        return Crash()
    what = re.search(r"what\(\): +(?:\[enforce fail at [^]]*\] )?(.*)", before.rpartition("Fatal Python error")[2])
    own = stacks.rpartition("Current thread " if "Current thread " in stacks else "\nThread ")[2]
    line = re.search(r'^ +File "([^"]+)", line (\d+) in (\S+)', own, re.MULTILINE)
    place = f"{line[3]} ({Path(line[1]).name}:{line[2]})" if line else ""
    return Crash(place, what[1][:MOST_CHARACTERS] if what else "")
