"""The journal: one JSON object per line, one file per worker. It is the source of every figure Lockstep reports.

Lines are appended and flushed at once. A worker killed while writing leaves half a line: the next launch starts a new
one and readers skip what they cannot parse, and count it.
"""

import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NotRequired, TextIO, TypedDict

from pydantic_core import from_json

from lockstep.run.standing import Line, select_standing


class Words(TypedDict):
    """Words without padding, on both sides; for images their number."""

    source: int
    target: int


class LayerSumFacts(TypedDict):
    """Small all-reduces inside forward and backward (batch norm)."""

    count: int
    seconds: float
    bytes: int


class StepLine(TypedDict):
    """The line of one step, the project's central fact. `words` and `seconds` are the worker's own."""

    step: int
    epoch: int
    loss: float  # per target word
    lr: float
    grad_norm: float
    words: Words
    seconds: float
    phases: dict[str, float]  # input, forward, backward, merge (exposed exchange), update
    merge_overlapped: float  # seconds of exchange that backward hid
    bytes_sent: int
    cursor: int  # position in the epoch after the step
    attempt: int  # the number of the launch; of several lines of a step the last one counts (`run/standing.py`)
    scope: str  # "global": the loss is that of all workers; "worker": this worker's
    warmup: bool  # left out of averages
    applied: bool  # False: the gradient was not finite
    batch: str  # digest of the global batch
    global_target_words: int
    watching: float  # seconds that clock, journal and display took, for the step before
    branch: NotRequired[str]  # where workers may die and come back
    sums: NotRequired[LayerSumFacts]
    part: NotRequired[int]  # which share, under asynchronous servers
    staleness: NotRequired[int]


LAST_BYTES = 8192
MOMENTS = ("since",)
"""Facts that are seconds since 1970."""


@dataclass(frozen=True)
class Event:
    """A journal line about what happened in the background. `sentence` is shown on the terminal, unless it is empty."""

    kind: str
    sentence: str = ""
    facts: dict[str, str | int | float | None] = field(default_factory=dict)


def worker_file(folder: Path, rank: int) -> Path:
    return folder / f"worker-{rank:04d}.jsonl"


class Journal:
    """The writing end, one per worker. The loop and the sampler write from different threads: a line stays a line."""

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = worker_file(folder, rank)
        torn = path.exists() and path.stat().st_size > 0 and not _ends_in_newline(path)
        self._file: TextIO = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        if torn:
            self._file.write("\n")

    def write(self, kind: str, **facts: Any) -> None:
        with self._lock:
            self._file.write(_format_line(kind, facts))
            self._file.flush()

    def write_step(self, line: StepLine) -> None:
        self.write("step", **line)

    def close(self) -> None:
        """Closes the file. A line that a full disk did not take was an error when it was written."""
        with self._lock, suppress(OSError):
            self._file.close()


def append_line(path: Path, kind: str, **facts: Any) -> None:
    """Adds a line to a file of the journal that no worker writes."""
    with path.open("a", encoding="utf-8") as file:
        file.write(_format_line(kind, facts))


def _format_line(kind: str, facts: dict[str, Any]) -> str:
    moments = {name: round(facts[name], 3) for name in MOMENTS if name in facts}  # seven digits are hours
    line = {"kind": kind, "time": round(time.time(), 3), **_plain(facts), **moments}
    return json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n"


def _ends_in_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"


def _plain(value: Any) -> Any:
    """JSON has no NaN or infinity, and seven significant digits say all that a float32 knows."""
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


@dataclass
class WorkerLines:
    """What a journal file says. A step that was computed again after a resume counts once, by its last attempt; where a
    worker takes several shares of a step (`part`), each is a line."""

    steps: list[Line] = field(default_factory=list)
    events: list[Line] = field(default_factory=list)
    damaged: int = 0

    @property
    def last_launch(self) -> Line | None:
        """The `run` line of the last launch that took a step, or of the last one."""
        launches = self.of("run")
        last = self.steps[-1].get("attempt") if self.steps else None
        return next((line for line in launches if line.get("attempt") == last), launches[-1] if launches else None)

    def of(self, kind: str) -> list[Line]:
        return [event for event in self.events if event["kind"] == kind]


def lines(path: Path) -> Iterator[Line | None]:
    """The lines of a journal file; None for one that cannot be read."""
    with path.open("rb") as file:
        for raw in file:
            if not raw.strip():
                continue
            yield parse_line(raw)


def parse_line(raw: bytes) -> Line | None:
    """Returns a line of a journal; None when it is damaged. `from_json` is four times as fast as `json` and returns the
    same values, but refuses some lines that `json` reads, such as those with half of a surrogate pair."""
    try:
        line = from_json(raw)
    except ValueError:
        try:
            line = json.loads(raw)
        except ValueError:
            return None
    return line if isinstance(line, dict) and "kind" in line else None


def read(folder: Path, rank: int = 0) -> WorkerLines:
    path = worker_file(folder, rank)
    every = list(lines(path)) if path.exists() else []
    readable = [line for line in every if line is not None]
    events = [line for line in readable if line["kind"] != "step"]
    return WorkerLines(select_standing(readable, "step"), events, len(every) - len(readable))


def read_last_lines(path: Path) -> list[Line]:
    """Returns the readable lines in the last few kilobytes of a journal file."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LAST_BYTES))
        return [line for raw in file if (line := parse_line(raw)) is not None]
