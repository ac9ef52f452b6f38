"""What a monitor tells the journal: `journal/monitor-HOST.jsonl` has a line for every fault of the workers on its host."""

import re
import socket
import time
from contextlib import suppress
from pathlib import Path

from lockstep.run.journal import append_line
from lockstep.run.outbox import find_own_folder


class FaultLog:
    """Appends lines. It never fails: a monitor must continue where nothing can be written."""

    def __init__(self, journal: Path | None, host: str | None = None) -> None:
        self.host = socket.gethostname() if host is None else host
        self._journal = journal

    def write(
        self,
        what: str,
        sentence: str,
        *,
        host: str | None = None,
        rank: int | None = None,
        since: float | None = None,
        **facts: object,
    ) -> None:
        """Notes a fault: `stall`, `host lost`, `died`, `ended` (by a monitor), `continues`, `slow worker`, `slow worker
        ends`. `since` is of the machine's monotonic clock."""
        if self._journal is None:
            return
        began = None if since is None else time.time() - (time.monotonic() - since)
        moment = {} if began is None else {"since": began}
        with suppress(OSError):
            if self._journal.parent.is_dir():
                journal = find_own_folder(self._journal.parent) / self._journal.name
                journal.mkdir(exist_ok=True)
                place = journal / f"monitor-{clean_name(self.host)}.jsonl"
                host = self.host if host is None else host
                append_line(place, "fault", what=what, host=host, rank=rank, sentence=sentence, **moment, **facts)


def clean_name(host: str) -> str:
    """Returns the name of a host without what a file name should not have."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", host)[:64] or "_"
