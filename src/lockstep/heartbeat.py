"""Heartbeats: where each worker of a launch is, for a monitor outside the workers.

A worker maps a small file into memory and writes its place in the step there, without a lock or a system call. The launcher
reads it. Without LOCKSTEP_HEARTBEATS a beat costs one comparison.
"""

import mmap
import struct
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from lockstep.run import environment_variables

PHASES = ("start", "input", "forward", "backward", "merge", "update", "evaluate", "save", "score")
"""Where a worker can be. `evaluate` beats with every sentence position; `score` is the rest of an evaluation, and all of it
for a task that does not report its progress."""
STEP_PHASES = frozenset(PHASES[1:6])
REMEMBERED_STEPS = 100
_FORMAT = struct.Struct("<qqqdd")
_BATCH = struct.Struct("<qqqq")
_WORK = struct.Struct("<qqdd")
_BATCH_PLACE = _FORMAT.size
_WORK_PLACE = _BATCH_PLACE + _BATCH.size
_SIZE = _WORK_PLACE + _WORK.size


@dataclass(frozen=True)
class Heartbeat:
    """The last sign of life of a worker."""

    step: int  # that it computes; 0 before the first one of the launch
    count: int  # beats in this step: workers that compute the same step beat at the same places
    phase: str
    time: float  # of the machine's monotonic clock
    slowest: float  # seconds of the slowest of the last hundred steps; 0 before the first one ended


@dataclass(frozen=True)
class BatchShape:
    """The share of a global batch that a worker computes."""

    examples: int
    words: int  # on the target side
    longest_source: int  # 0 where the task has no sentences
    longest_target: int

    def describe(self) -> str:
        if not self.longest_source:
            return f"{self.examples:,} examples"
        return f"{self.examples:,} sentences, longest {self.longest_source}/{self.longest_target}, {self.words:,} words"


@dataclass(frozen=True)
class WorkDone:
    """What a worker has done since its start. Waiting for other workers is not work."""

    steps: int
    words: int  # or images: what the task counts
    seconds: float  # of computing and of waiting for input
    input_seconds: float  # of them


class HeartbeatWriter:
    """The worker's end."""

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(_SIZE)
            self._memory = mmap.mmap(file.fileno(), _SIZE)
        self._step, self._count, self._begin = 0, 0, 0.0
        self._durations: deque[float] = deque(maxlen=REMEMBERED_STEPS)
        self._slowest = 0.0
        self._steps, self._words, self._seconds, self._input_seconds = 0, 0, 0.0, 0.0
        self.beat("start")

    def begin_step(self, step: int) -> None:
        """Notes that the worker computes this step from now on."""
        now = time.monotonic()
        if step == self._step + 1 and self._begin:
            self._durations.append(now - self._begin)
            self._slowest = max(self._durations)
        self._step, self._count, self._begin = step, 0, now
        self.beat("input")

    def beat(self, phase: str) -> None:
        """Notes that the worker has entered a phase, or has come further in it."""
        self._count += 1
        if phase not in STEP_PHASES:
            self._begin = 0.0  # the time until the next step is not that of a step
        place = self._step, self._count, PHASES.index(phase)
        _FORMAT.pack_into(self._memory, 0, *place, time.monotonic(), self._slowest)

    def note_batch(self, examples: int, words: int, longest_source: int, longest_target: int) -> None:
        """Notes what the worker computes in this step."""
        _BATCH.pack_into(self._memory, _BATCH_PLACE, examples, words, longest_source, longest_target)

    def note_work(self, words: int, seconds: float, input_seconds: float) -> None:
        """Adds the work of a step that has ended."""
        self._steps += 1
        self._words += words
        self._seconds += seconds
        self._input_seconds += input_seconds
        _WORK.pack_into(self._memory, _WORK_PLACE, self._steps, self._words, self._seconds, self._input_seconds)


_writer: HeartbeatWriter | None = None


def open_heartbeat() -> None:
    """Starts the heartbeats of this worker, if a monitor has asked for them."""
    global _writer
    folder = environment_variables.heartbeat_folder()
    if folder is not None and folder.is_dir():
        _writer = HeartbeatWriter(folder / f"heartbeat-{environment_variables.rank()}")


def begin_step(step: int) -> None:
    if _writer is not None:
        _writer.begin_step(step)


def beat(phase: str) -> None:
    if _writer is not None:
        _writer.beat(phase)


def note_batch(examples: int, words: int, longest_source: int, longest_target: int) -> None:
    if _writer is not None:
        _writer.note_batch(examples, words, longest_source, longest_target)


def note_work(words: int, seconds: float, input_seconds: float) -> None:
    if _writer is not None:
        _writer.note_work(words, seconds, input_seconds)


def read_heartbeat(folder: Path, rank: int) -> Heartbeat | None:
    """Returns the last heartbeat of a worker; None before its first one."""
    try:
        step, count, phase, moment, slowest = _FORMAT.unpack_from((folder / f"heartbeat-{rank}").read_bytes())
        return Heartbeat(step, count, PHASES[phase], moment, slowest) if moment else None
    except (OSError, struct.error, IndexError):
        return None


def read_batch(folder: Path, rank: int) -> BatchShape | None:
    """Returns what a worker computes in its step; None before the first one."""
    try:
        shape = BatchShape(*_BATCH.unpack_from((folder / f"heartbeat-{rank}").read_bytes(), _BATCH_PLACE))
    except (OSError, struct.error):
        return None
    return shape if shape.examples else None


def read_work(folder: Path, rank: int) -> WorkDone | None:
    """Returns what a worker has done since its start; None where it has not started."""
    try:
        return WorkDone(*_WORK.unpack_from((folder / f"heartbeat-{rank}").read_bytes(), _WORK_PLACE))
    except (OSError, struct.error):
        return None
