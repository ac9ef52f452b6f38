"""The journal: one JSON object per line, one file per worker. It is the source of every figure Lockstep reports.

Lines are appended and flushed at once. A worker killed while writing leaves half a line: the next launch starts a new
one and readers skip what they cannot parse, and count it.
"""

import json
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from lockstep.run.standing import Line, select_standing


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
            line = {"kind": kind, "time": round(time.time(), 3), **_plain(facts)}
            self._file.write(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n")
            self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()


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
            try:
                line = json.loads(raw)
                yield line if isinstance(line, dict) and "kind" in line else None
            except ValueError:
                yield None


def read(folder: Path, rank: int = 0) -> WorkerLines:
    path = worker_file(folder, rank)
    every = list(lines(path)) if path.exists() else []
    readable = [line for line in every if line is not None]
    events = [line for line in readable if line["kind"] != "step"]
    return WorkerLines(select_standing(readable, "step"), events, len(every) - len(readable))
