"""The status of every worker of a run, read from the ends of the growing journals."""

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from lockstep.run.journal import Line, lines, parse_line

SPEED_STEPS = 20
"""Steps over which the speed is averaged."""
TAIL_BYTES = 200_000
"""Of a longer journal only this much is read at first, if it contains a step."""
EVENT_TEXTS = {
    "run": "starts",
    "resume": "resumed from step {step:,}",
    "heal": "healed from a peer",
    "step": "trains",
    "evaluating": "evaluating {done:,} of {of:,}",
    "evaluation": "evaluated",
    "evaluation_stopped": "evaluation stopped",
    "checkpoint": "saved step {step:,}",
    "fault": "{what}",
    "stop": "stopped: {reason}",
}
"""What is shown for each kind of journal line. Samples of the machine only show that a worker is alive."""


@dataclass(frozen=True)
class WorkerStatus:
    """What a worker last wrote to its journal."""

    worker: int
    step: int | None  # None before the first step
    loss: float | None
    per_second: float | None  # the worker's own speed over its last steps
    merge_share: float | None  # share of these steps spent in exchange that computation did not hide, and in waiting
    staleness: int | None  # with asynchronous parameter servers
    event: str
    event_time: float | None
    last_line_time: float | None  # of any line, also samples of the machine

    @property
    def is_stopped(self) -> bool:
        return self.event.startswith("stopped")

    def as_dict(self) -> dict[str, int | float | str | None]:
        """Returns what `lockstep runs follow --json` prints."""
        return {
            "worker": self.worker,
            "step": self.step,
            "loss": self.loss,
            "per_second": self.per_second,
            "merge_share": self.merge_share,
            "staleness": self.staleness,
            "said": self.event,
            "time": self.event_time,
            "heard": self.last_line_time,
        }


@dataclass
class _Tail:
    """Reads one journal as it grows."""

    file: BinaryIO
    rest: bytes = b""  # a line that is not complete yet
    event: tuple[str, float] | None = None  # the text of the last event, and its time
    last_line_time: float | None = None
    step: Line = field(default_factory=dict)  # the last step line of the launch
    # words, seconds and merge seconds of the last steps
    recent: deque[tuple[float, float, float]] = field(default_factory=lambda: deque(maxlen=SPEED_STEPS))

    @classmethod
    def open(cls, path: Path) -> "_Tail":
        tail = cls(path.open("rb"))
        if path.stat().st_size > TAIL_BYTES:
            tail.file.seek(-TAIL_BYTES, 2)
            tail.file.readline()
            tail.read_new_lines()
            if not tail.step:  # only samples, of a long evaluation: read the whole journal
                tail.file.seek(0)
                tail.rest = b""
        return tail

    def read_new_lines(self) -> None:
        *complete, self.rest = (self.rest + self.file.read()).split(b"\n")
        for raw in complete:
            line = parse_line(raw)
            with suppress(KeyError, TypeError, ValueError):  # a line with missing or wrong values
                if line is not None:
                    self._add(line)

    def _add(self, line: Line) -> None:
        if line["kind"] == "step":
            words, seconds, merge = line["words"]["target"], line["seconds"], line["phases"]["merge"]
            self.recent.append((float(words), float(seconds), float(merge)))
            self.step = line
        elif line["kind"] == "run":
            self.step = {}
            self.recent.clear()
        if line["kind"] in EVENT_TEXTS:
            self.event = EVENT_TEXTS[line["kind"]].format_map(line), float(line["time"])
        self.last_line_time = float(line["time"])

    def make_status(self, worker: int) -> WorkerStatus:
        words, seconds, merge = (sum(column) for column in zip(*self.recent, strict=True)) if self.recent else (0, 0, 0)
        event, event_time = self.event or ("", None)
        return WorkerStatus(
            worker,
            self.step.get("step"),
            self.step.get("loss"),
            words / seconds if seconds else None,
            merge / seconds if seconds else None,
            self.step.get("staleness"),
            event,
            event_time,
            self.last_line_time,
        )


class Follower:
    """Follows the journals of a run; each poll reads only the new lines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[int, _Tail] = {}
        self._unit = ""

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *_: object) -> None:
        for tail in self._tails.values():
            tail.file.close()

    @property
    def unit(self) -> str:
        """The unit of speed, from the first line of a journal."""
        for path in () if self._unit else self._folder.glob("worker-*.jsonl"):
            self._unit = str((next(lines(path), None) or {}).get("unit", ""))
        return "target words" if self._unit in ("", "words") else self._unit

    def poll(self) -> list[WorkerStatus]:
        """Returns the current status of every worker."""
        for path in self._folder.glob("worker-*.jsonl"):
            number = path.stem.removeprefix("worker-")
            if number.isdecimal() and int(number) not in self._tails:
                self._tails[int(number)] = _Tail.open(path)
        for tail in self._tails.values():
            tail.read_new_lines()
        return [tail.make_status(rank) for rank, tail in sorted(self._tails.items())]
