"""What a monitor tells the journal: `journal/monitor-HOST.jsonl` has a line for every fault of the workers on its host."""

import json
import re
import socket
import time
from contextlib import suppress
from pathlib import Path

from lockstep.heartbeat import Heartbeat


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
        beat: Heartbeat | None = None,
        since: float | None = None,
        evidence: str | None = None,
    ) -> None:
        """Notes a fault: `stall`, `host lost`, `died`, `ended` (by a monitor), `continues`. `since` is of the machine's
        monotonic clock."""
        if self._journal is None:
            return
        began = None if since is None else round(time.time() - (time.monotonic() - since), 3)
        facts = {
            "kind": "fault",
            "time": round(time.time(), 3),
            "what": what,
            "host": self.host if host is None else host,
            "rank": rank,
            "phase": None if beat is None else beat.phase,
            "step": None if beat is None else beat.step,
            "since": began,
            "evidence": evidence,
            "sentence": sentence,
        }
        with suppress(OSError):
            if self._journal.parent.is_dir():
                self._journal.mkdir(exist_ok=True)
                with (self._journal / f"monitor-{clean_name(self.host)}.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(facts, separators=(",", ":")) + "\n")


def clean_name(host: str) -> str:
    """Returns the name of a host without what a file name should not have."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", host)[:64] or "_"
