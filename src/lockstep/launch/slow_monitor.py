"""Looks at the speed of all workers of this host, and says on the console and in the journal which one is slow."""

import time
from collections.abc import Sequence
from pathlib import Path

from lockstep.heartbeat import read_work
from lockstep.launch.fault_log import FaultLog
from lockstep.launch.processor_use import read_use
from lockstep.launch.slow_watch import Look, SlowWatch, SlowWorker
from lockstep.launch.stall_watch import WatchedWorker
from lockstep.notices import warn

LOOK_SECONDS = 1.0


class SlowMonitor:
    """`folder` has the heartbeats."""

    def __init__(self, folder: Path, log: FaultLog) -> None:
        self._folder, self._log = folder, log
        self._watch = SlowWatch()
        self._last_look = 0.0

    def check(self, workers: Sequence[WatchedWorker]) -> None:
        """Looks at the workers, at most once a second."""
        if time.monotonic() - self._last_look < LOOK_SECONDS:
            return
        self._last_look = time.monotonic()
        works = {worker: read_work(self._folder, worker.rank) for worker in workers}
        looks = {worker.rank: Look(work, read_use(worker.pid)) for worker, work in works.items() if work is not None}
        slow, fast = self._watch.check(looks)
        for worker in slow:
            warn(worker.sentence)
            self._write("slow worker", worker)
        for worker in fast:
            warn(f"Worker {worker.rank} is as fast as the others again.")
            self._write("slow worker ends", worker)

    def close(self) -> None:
        """Journals until when a worker was slow that still is."""
        for worker in self._watch.named.values():
            self._write("slow worker ends", worker)

    def _write(self, what: str, worker: SlowWorker) -> None:
        self._log.write(
            what,
            worker.sentence,
            rank=worker.rank,
            since=worker.since,
            slower=worker.slower,
            share=worker.share,
            cause=worker.cause,
            evidence=worker.evidence,
        )
