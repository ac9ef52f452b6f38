"""What the launcher of one machine watches its workers for: it names and ends those that stand still, and notices when lost
workers may come back."""

import math
import time
from pathlib import Path

from lockstep.heartbeat import STEP_PHASES
from lockstep.launch.describe_stall import Stall
from lockstep.launch.fault_log import FaultLog
from lockstep.launch.stall_watch import StallWatch, WatchedWorker
from lockstep.launch.supervisor import ChildProcess, Supervisor
from lockstep.notices import warn


class Monitor:
    """Watches the workers of one start. `return_seconds` after it, and beyond `furthest_step`, they are asked to stop, so
    that more can start."""

    def __init__(
        self,
        watch: StallWatch | None,
        workers: int,
        journal: Path | None,
        return_seconds: float = math.inf,
        furthest_step: int = 0,
    ) -> None:
        self.supervisor: Supervisor | None = None
        self.ended: Stall | None = None  # the stall for which workers were ended
        self.is_return_due = False  # the workers were asked to stop
        self.log = FaultLog(journal)
        self._watch, self._workers = watch, workers
        self._named: Stall | None = None
        self._return_at, self._return_step = time.monotonic() + return_seconds, furthest_step

    @property
    def is_watching(self) -> bool:
        return self._watch is not None

    @property
    def furthest_step(self) -> int:
        return 0 if self._watch is None else self._watch.find_furthest_step(self._workers)

    def check(self) -> None:
        if self._watch is None or self.supervisor is None or self.supervisor.is_stopping or self.supervisor.signals:
            return
        if self.ended is not None:
            return
        children = [child for child in self.supervisor.children if child.rank < self._workers]
        self._name_stalls(self._watch, children)
        if self._watch.is_over():
            self._end(self._watch, children)
        elif time.monotonic() > self._return_at and not self._watch.stall and self._take_steps(self._watch):
            self.is_return_due = True
            self.supervisor.ask_to_stop()

    def _name_stalls(self, watch: StallWatch, children: list[ChildProcess]) -> None:
        new = watch.check([WatchedWorker(child.rank, child.process.pid) for child in children])
        if new is not None:
            self._named = new
            warn(new.sentence)
            self._note("stall", watch, new)
        elif self._named is not None and watch.stall is None:
            who = "The workers continue" if self._named.rank is None else f"Worker {self._named.rank} continues"
            warn(f"{who}.")
            self.log.write("continues", f"{who}.", rank=self._named.rank, since=self._named.since)
            self._named = None

    def _end(self, watch: StallWatch, children: list[ChildProcess]) -> None:
        self.ended = watch.stall
        for child in children:
            if self.ended is None or self.ended.rank in (None, child.rank):
                child.process.kill()
        if self.ended is not None:
            self._note("ended", watch, self.ended)

    def _note(self, what: str, watch: StallWatch, stall: Stall) -> None:
        beat = None if stall.rank is None else watch.view.beats.get(stall.rank)
        self.log.write(what, stall.sentence, rank=stall.rank, beat=beat, since=stall.since, evidence=stall.evidence)

    def _take_steps(self, watch: StallWatch) -> bool:
        """Whether all workers are in a step beyond the furthest one: they can stop and save."""
        beats = watch.view.beats.values()
        are_in_step = all(beat.phase in STEP_PHASES and beat.step > self._return_step for beat in beats)
        return len(beats) == self._workers and are_in_step
