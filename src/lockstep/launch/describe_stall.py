"""Decides which of the workers that stand still is to blame, and says it in one sentence with what the system knows of it.

Of several workers that do not beat, the one that is not where the others wait is to blame. A worker that is stopped, or
whose process is gone, is to blame in any case.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lockstep.heartbeat import STEP_PHASES, Heartbeat
from lockstep.launch.process_state import ProcessState

PHASE_NAMES = {
    "merge": "the exchange",
    "start": "its start",
    "evaluate": "an evaluation",
    "score": "an evaluation",
    "save": "a save",
}
CLEAR_SECONDS = 0.1
"""In an evaluation, a last beat that is older by less than this does not show who is behind."""


@dataclass(frozen=True)
class Stall:
    """Who stands still. `evidence` is established, supported or unknown."""

    rank: int | None  # None: it is not known who is to blame
    since: float  # of the machine's monotonic clock
    evidence: str
    sentence: str


def describe_stall(
    beats: dict[int, Heartbeat],
    late: dict[int, Heartbeat],
    states: dict[int, ProcessState],
    before: dict[int, ProcessState],
    pids: dict[int, int],
    now: float,
) -> Stall:
    """Decides who is to blame, and says it in one sentence."""
    halted = [rank for rank in late if states[rank].is_halted]
    behind = _find_behind(beats, late)
    rank = halted[0] if halted else behind
    if rank is None:
        seconds = max(now - beat.time for beat in late.values())
        names = _list_workers(sorted(late))
        phases = {PHASE_NAMES.get(beat.phase, beat.phase) for beat in late.values()}
        where = f"in {' and '.join(sorted(phases))} of step {max(beat.step for beat in late.values()):,}"
        sentence = (
            f"{names} {'has' if len(late) == 1 else 'have'} not moved for {seconds:.0f} s {where}, all at the same place: "
            "a lost connection, or a worker that skipped an exchange (cause unknown)."
        )
        return Stall(None, now - seconds, "unknown", sentence)
    beat, state = beats[rank], states[rank]
    seconds = now - beat.time
    evidence = "established" if halted else "supported"
    phase = PHASE_NAMES.get(beat.phase, beat.phase)
    where = f"in {phase} of step {beat.step:,}" if beat.phase in STEP_PHASES else f"in {phase}"
    line = _find_line(pids[rank])
    at = f", at {line}" if line else ""
    victims = [other for other in sorted(late) if other != rank]
    waiting = f" {_list_workers(victims)} {'waits' if len(victims) == 1 else 'wait'} for it." if victims else ""
    sentence = (
        f"Worker {rank} (process {pids[rank]}) has stood still for {seconds:.0f} s {where}: "
        f"{state.describe(before.get(rank))}{at} ({evidence}).{waiting}"
    )
    return Stall(rank, beat.time, evidence, sentence)


def _find_behind(beats: dict[int, Heartbeat], late: dict[int, Heartbeat]) -> int | None:
    """Returns the late worker that is behind all others; None if there is no single one. In an evaluation workers do not
    beat at the same places: there the one whose last beat is the oldest is behind."""
    if len(beats) == 1:
        return next(iter(late), None)
    beats_alike = all(beat.phase in STEP_PHASES for beat in beats.values())
    places = [(beat.step, float(beat.count) if beats_alike else beat.time, rank) for rank, beat in beats.items()]
    (step, place, rank), (next_step, next_place, _), *_ = sorted(places)
    is_clear = step < next_step or next_place - place > (0.0 if beats_alike else CLEAR_SECONDS)
    return rank if is_clear and rank in late else None


def _list_workers(ranks: list[int]) -> str:
    names = [str(rank) for rank in ranks]
    return f"Worker {names[0]}" if len(names) == 1 else f"Workers {', '.join(names[:-1])} and {names[-1]}"


def _find_line(pid: int) -> str | None:
    """Returns the innermost Python line of a process, through py-spy where it is installed and may look; without the help
    of the process."""
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if program is None:
        return None
    command = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=5.0, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_stack(result.stdout)


def parse_stack(text: str) -> str | None:
    """Returns the innermost line of the main thread in the output of py-spy: `forward (transformer.py:120)`."""
    lines = iter(text.splitlines())
    for line in lines:
        if "MainThread" in line:
            innermost = next(lines, "").strip()
            name, _, place = innermost.partition(" (")
            return f"{name} ({Path(place.rstrip(')')).name})" if place else None
    return None
