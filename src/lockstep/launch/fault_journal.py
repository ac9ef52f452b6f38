"""Writes faults that a worker cannot write itself into the journal of the run."""

import socket
import time
from contextlib import suppress
from pathlib import Path

from lockstep.run.journal import append_line


class FaultJournal:
    """The monitor's file in the journal: `monitor-HOST.jsonl`. Without a folder, and before the run has one, nothing is
    written."""

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._host = folder, socket.gethostname()

    def write(self, what: str, rank: int | None, **facts: object) -> None:
        """Adds a `fault` line. A full disk must not end the monitor."""
        if self._folder is not None and self._folder.is_dir():
            with suppress(OSError):
                place = self._folder / f"monitor-{self._host}.jsonl"
                append_line(place, "fault", what=what, host=self._host, rank=rank, **facts)

    def write_stall(self, what: str, rank: int | None, begin: float, **facts: object) -> None:
        """Adds a `fault` line about something that began at a moment of the machine's monotonic clock."""
        self.write(what, rank, since=round(time.time() - (time.monotonic() - begin), 3), **facts)
