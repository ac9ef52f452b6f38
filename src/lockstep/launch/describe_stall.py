"""Decides which of the workers that stand still is to blame, and says it in one sentence with what the system knows of it.

Of several workers that do not beat, the one that is not where the others wait is to blame: it is behind them, or it is
ahead because it skipped an exchange. A worker that is stopped, or whose process is gone, is to blame in any case.
"""

import time
from dataclasses import dataclass

from lockstep.heartbeat import STEP_PHASES, BatchShape, Heartbeat
from lockstep.launch.process_state import ProcessState, describe_memory
from lockstep.launch.python_stack import PythonStack, read_stack

PHASE_NAMES = {
    "merge": "the exchange",
    "start": "its start",
    "evaluate": "an evaluation",
    "score": "an evaluation",
    "save": "a save",
}
WAITING_SECONDS = 1.0
"""A worker that is in an exchange for so long waits for another one."""
CLEAR_SECONDS = 0.1
"""In an evaluation, a last beat that is older by less than this does not show who is behind."""


@dataclass(frozen=True)
class Stall:
    """Who stands still. `evidence` is established, supported or unknown."""

    rank: int | None  # None: it is not known who is to blame
    since: float  # of the machine's monotonic clock
    evidence: str
    sentence: str
    phase: str = ""
    step: int = 0
    victims: tuple[int, ...] = ()  # who wait for it
    is_moving: bool = False  # slowly, so that nobody must be ended


def describe_stall(
    beats: dict[int, Heartbeat],
    late: dict[int, Heartbeat],
    states: dict[int, ProcessState],
    before: dict[int, ProcessState],
    pids: dict[int, int],
    now: float,
    host: str = "",
    batches: dict[int, BatchShape] | None = None,
) -> Stall:
    """Decides who is to blame, and says it in one sentence. `host` is named where there are several."""
    halted = [rank for rank in late if states[rank].is_halted]
    skipper = None if halted else _find_skipper(beats, states, pids, before)
    rank = halted[0] if halted else skipper if skipper is not None else _find_behind(beats, late)
    if rank is None:
        return _describe_disk(late, states, before, now, host) or _describe_unknown(late, now, host)
    beat, state = beats[rank], states[rank]
    seconds = now - beat.time
    stack = PythonStack() if state.is_halted and not state.letter else read_stack(pids[rank])
    evidence = "established" if halted else "supported"
    what = (
        f"it is ahead of the others, so it skipped an exchange{', or its connection is lost' * bool(host)}"
        if rank == skipper
        else state.describe(before.get(rank), bool(stack.holder) and not stack.holder_name)
    )
    victims = tuple(other for other in sorted(beats) if other != rank and (other in late or _waits(beats[other], now)))
    waiting = f" {_list_workers(victims)} {'waits' if len(victims) == 1 else 'wait'} for it." if victims else ""
    batch = (batches or {}).get(rank)
    sentence = (
        f"Worker {rank} ({f'{host}, ' * bool(host)}process {pids[rank]}) has stood still for {seconds:.0f} s, "
        f"since {_format_clock(seconds)}, in {name_place(beat)}"
        f"{f' ({batch.describe()})' if batch and beat.phase in STEP_PHASES else ''}: "
        f"{what}{_describe_place(stack)} ({evidence}).{waiting}{_add_memory(state)}"
    )
    return Stall(rank, beat.time, evidence, sentence, beat.phase, beat.step, victims)


def _waits(beat: Heartbeat, now: float) -> bool:
    """Does this worker wait in an exchange, although it is not late yet?"""
    return beat.phase == "merge" and now - beat.time > WAITING_SECONDS


def _describe_disk(
    late: dict[int, Heartbeat], states: dict[int, ProcessState], before: dict[int, ProcessState], now: float, host: str
) -> Stall | None:
    """Workers that wait for a disk stand still because of it, also if all of them are at the same place."""
    ranks = [rank for rank in late if states[rank].letter == "D" and rank in before and before[rank].letter == "D"]
    if not ranks:
        return None
    hanging = {rank: late[rank] for rank in ranks}
    who, wait = _describe_group(hanging, now, host), "waits" if len(ranks) == 1 else "wait"
    sentence = f"{who}: {'it' if len(ranks) == 1 else 'they'} {wait} for a disk or a file system (supported)."
    first, rank = hanging[min(ranks)], ranks[0] if len(ranks) == 1 else None
    return Stall(rank, min(beat.time for beat in hanging.values()), "supported", sentence, first.phase, first.step)


def _describe_unknown(late: dict[int, Heartbeat], now: float, host: str) -> Stall:
    """Nobody is to blame: all wait at the same place."""
    seconds = max(now - beat.time for beat in late.values())
    last = max(late.values(), key=lambda beat: beat.step)
    sentence = (
        f"{_describe_group(late, now, host)}, all at the same place: a lost connection, or a worker that skipped an "
        "exchange (cause unknown)."
    )
    return Stall(None, now - seconds, "unknown", sentence, last.phase, last.step, tuple(sorted(late)))


def _describe_group(late: dict[int, Heartbeat], now: float, host: str) -> str:
    """Returns the beginning of a sentence about workers that do not move."""
    seconds = max(now - beat.time for beat in late.values())
    phases = {PHASE_NAMES.get(beat.phase, beat.phase) for beat in late.values()}
    who = f"{_list_workers(tuple(sorted(late)))}{f' of {host}' * bool(host)} {'has' if len(late) == 1 else 'have'}"
    step = max(beat.step for beat in late.values())
    where = f"{' and '.join(sorted(phases))} of step {step:,}"
    return f"{who} not moved for {seconds:.0f} s, since {_format_clock(seconds)}, in {where}"


def name_place(beat: Heartbeat) -> str:
    phase = PHASE_NAMES.get(beat.phase, beat.phase)
    return f"{phase} of step {beat.step:,}" if beat.phase in STEP_PHASES else phase


def _describe_place(stack: PythonStack) -> str:
    """Returns the innermost line, and who holds the interpreter if that is another thread."""
    if stack.is_forbidden:
        return ", its stack may not be read (ptrace)"
    at = f", at {stack.line}" if stack.line else ""
    return f"{at}; thread {stack.holder_name} holds the interpreter at {stack.holder}" if stack.holder_name else at


def _add_memory(state: ProcessState) -> str:
    memory = "" if state.is_halted else describe_memory()
    return f" {memory[0].upper()}{memory[1:]}." if memory else ""


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


def _find_skipper(
    beats: dict[int, Heartbeat], states: dict[int, ProcessState], pids: dict[int, int], before: dict[int, ProcessState]
) -> int | None:
    """Returns the one worker that is a step ahead while all others wait in the last exchange of the step before, which it
    must have skipped: nobody leaves that exchange before all have entered it."""
    *others, ahead = sorted(beats, key=lambda rank: (beats[rank].step, beats[rank].count))
    if not others or any(beat.phase != "merge" for beat in beats.values()):
        return None
    places = {(beats[rank].step, beats[rank].count) for rank in others}
    if len(places) > 1 or max(places)[0] >= beats[ahead].step:
        return None
    are_waiting = (_waits_in_exchange(states[rank], before.get(rank), pids[rank]) for rank in others)
    return ahead if all(are_waiting) else None


def _waits_in_exchange(state: ProcessState, before: ProcessState | None, pid: int) -> bool:
    """Does this worker wait for others? Gloo waits in a thread of its own, and the main thread waits for that one."""
    if state.letter != "S" or state.waits not in ("for another thread", "for the network") or state.is_busy(before):
        return False
    line = read_stack(pid).line
    return not line or "distributed_c10d" in line


def _list_workers(ranks: tuple[int, ...]) -> str:
    names = [str(rank) for rank in ranks]
    return f"Worker {names[0]}" if len(names) == 1 else f"Workers {', '.join(names[:-1])} and {names[-1]}"


def _format_clock(seconds_ago: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time.time() - seconds_ago))
