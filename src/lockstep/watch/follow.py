"""Where every worker of a run stands, read from the ends of their journals while they grow."""

import json
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from lockstep.run.journal import Line, lines

REMEMBERED = 20
"""Steps that a speed is a mean over."""
FIRST_LOOK_BYTES = 200_000
"""Of a long journal only the end is read, if it tells enough."""
SAID = {
    "run": "starts",
    "resume": "goes on from step {step:,}",
    "heal": "healed from a peer",
    "step": "trains",
    "evaluation": "evaluated",
    "checkpoint": "saved step {step:,}",
    "fault": "{what}",
    "stop": "stopped: {reason}",
}
"""What lines of a journal mean for a person who waits. Samples of the machine only show that a worker lives."""


@dataclass(frozen=True)
class Standing:
    """What a worker last said."""

    worker: int
    step: int | None  # None: none yet
    loss: float | None
    per_second: float | None  # what it computed itself, over its last steps
    merge_share: float | None  # of the same steps: exchange that nothing overlapped, and waiting for the others
    staleness: int | None  # under asynchronous servers
    said: str
    time: float | None  # when it said so
    heard: float | None  # when it last wrote anything

    @property
    def stopped(self) -> bool:
        return self.said.startswith("stopped")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class _Tail:
    """One journal, from where it was last read to its end."""

    file: BinaryIO
    rest: bytes = b""  # half a line
    said: tuple[str, float] | None = None  # the last line that means something, and when it was written
    heard: float | None = None
    step: Line = field(default_factory=dict)
    recent: deque[tuple[float, float, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    @classmethod
    def open(cls, path: Path) -> "_Tail":
        tail = cls(path.open("rb"))
        if path.stat().st_size > FIRST_LOOK_BYTES:
            tail.file.seek(-FIRST_LOOK_BYTES, 2)
            tail.file.readline()
            tail.read_on()
            if not tail.step:  # a long evaluation has filled it with samples
                tail.file.seek(0)
                tail.rest = b""
        return tail

    def read_on(self) -> None:
        *whole, self.rest = (self.rest + self.file.read()).split(b"\n")
        for raw in whole:
            try:
                self._take(json.loads(raw))
            except (ValueError, KeyError, TypeError):
                continue  # torn by a kill

    def _take(self, line: Line) -> None:
        if line["kind"] == "step":
            words, seconds, merge = line["words"]["target"], line["seconds"], line["phases"]["merge"]
            self.recent.append((float(words), float(seconds), float(merge)))
            self.step = line
        elif line["kind"] == "run":
            self.step = {}
            self.recent.clear()
        if line["kind"] in SAID:
            self.said = SAID[line["kind"]].format_map(line), float(line["time"])
        self.heard = float(line["time"])

    def standing(self, worker: int) -> Standing:
        words, seconds, merge = (sum(column) for column in zip(*self.recent, strict=True)) if self.recent else (0, 0, 0)
        said, time = self.said or ("", None)
        return Standing(
            worker,
            self.step.get("step"),
            self.step.get("loss"),
            words / seconds if seconds else None,
            merge / seconds if seconds else None,
            self.step.get("staleness"),
            said,
            time,
            self.heard,
        )


class Follower:
    """Looks at the journals of a run again and again; each look reads only what is new."""

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
        """What speed is counted in: the first line of a journal tells."""
        for path in () if self._unit else self._folder.glob("worker-*.jsonl"):
            self._unit = str((next(lines(path), None) or {}).get("unit", ""))
        return "target words" if self._unit in ("", "words") else self._unit

    def look(self) -> list[Standing]:
        for path in self._folder.glob("worker-*.jsonl"):
            number = path.stem.removeprefix("worker-")
            if number.isdecimal() and int(number) not in self._tails:
                self._tails[int(number)] = _Tail.open(path)
        for tail in self._tails.values():
            tail.read_on()
        return [tail.standing(rank) for rank, tail in sorted(self._tails.items())]
