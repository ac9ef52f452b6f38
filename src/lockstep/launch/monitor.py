"""What the launcher of one machine watches its workers for: it names and ends those that stand still, names slow ones, says
how a worker died, and notices when lost workers may come back."""

import math
import time
from dataclasses import dataclass
from pathlib import Path

from lockstep.heartbeat import STEP_PHASES, read_heartbeat
from lockstep.launch.describe_death import describe_death
from lockstep.launch.describe_stall import Stall
from lockstep.launch.fault_log import FaultLog
from lockstep.launch.memory_kills import MemoryKills
from lockstep.launch.slow_monitor import SlowMonitor
from lockstep.launch.stall_watch import StallWatch, WatchedWorker
from lockstep.launch.supervisor import ChildProcess, Supervisor
from lockstep.notices import warn
from lockstep.run.directory import RunDirectory


@dataclass(frozen=True)
class WatchedStart:
    """What a monitor watches: one start of a launch."""

    folder: Path  # of the heartbeats
    workers: int
    run_folder: Path | None
    are_compared: bool = True  # the workers take every step together, so that a slow one can be told
    return_seconds: float = math.inf  # after which they are asked to stop, so that more can start
    furthest_step: int = 0  # beyond which that may happen


class Monitor:
    """Watches the workers of one start. Without a `watch` it only says how one died."""

    def __init__(self, watch: StallWatch | None, start: WatchedStart) -> None:
        self.supervisor: Supervisor | None = None
        self.ended: Stall | None = None  # the stall for which workers were ended
        self.is_return_due = False  # the workers were asked to stop
        run = None if start.run_folder is None else RunDirectory(start.run_folder)
        self._watch, self._start, self._logs = watch, start, None if run is None else run.logs
        self._log = FaultLog(None if run is None else run.journal)
        self._kills, self._slow = MemoryKills(), SlowMonitor(start.folder, self._log)
        self._named: Stall | None = None
        self._return_at = time.monotonic() + start.return_seconds

    @property
    def is_watching(self) -> bool:
        return self._watch is not None

    @property
    def furthest_step(self) -> int:
        return 0 if self._watch is None else self._watch.find_furthest_step(self._start.workers)

    def check(self) -> None:
        if self._watch is None or self.supervisor is None or self.supervisor.is_stopping or self.supervisor.signals:
            return
        if self.ended is not None:
            return
        children = [child for child in self.supervisor.children if child.rank < self._start.workers]
        workers = [WatchedWorker(child.rank, child.process.pid) for child in children]
        self._kills.look(worker.pid for worker in workers)
        if self._start.are_compared:
            self._slow.check(workers)
        self._name_stalls(self._watch, workers)
        if self._watch.is_over():
            self._end(self._watch, children)
        elif time.monotonic() > self._return_at and not self._watch.stall and self._take_steps(self._watch):
            self.is_return_due = True
            self.supervisor.ask_to_stop()

    def describe_death(self, child: ChildProcess) -> str:
        """Says how a worker died that did not report why, and journals it."""
        folder, ranks = self._start.folder, range(self._start.workers)
        beats = {rank: beat for rank in ranks if (beat := read_heartbeat(folder, rank)) is not None}
        death = describe_death(child, self._kills, beats, self._logs)
        self._log.write(
            "died", death.sentence, rank=death.rank, phase=death.phase, step=death.step, evidence=death.evidence
        )
        return death.sentence

    def close(self) -> None:
        self._slow.close()

    def _name_stalls(self, watch: StallWatch, workers: list[WatchedWorker]) -> None:
        new = watch.check(workers)
        if new is not None:
            self._named = new
            warn(new.sentence)
            self._note("stall", new)
        elif self._named is not None and watch.stall is None:
            who = "The workers continue" if self._named.rank is None else f"Worker {self._named.rank} continues"
            warn(f"{who}.")
            self._note("continues", self._named)
            self._named = None

    def _end(self, watch: StallWatch, children: list[ChildProcess]) -> None:
        self.ended = watch.stall
        for child in children:
            if self.ended is None or self.ended.rank in (None, child.rank):
                child.process.kill()
        if self.ended is not None:
            self._note("ended", self.ended)

    def _note(self, what: str, stall: Stall) -> None:
        self._log.write(
            what,
            stall.sentence,
            rank=stall.rank,
            since=stall.since,
            phase=stall.phase,
            step=stall.step,
            evidence=stall.evidence,
        )

    def _take_steps(self, watch: StallWatch) -> bool:
        """Whether all workers are in a step beyond the furthest one: they can stop and save."""
        beats, furthest = watch.view.beats.values(), self._start.furthest_step
        are_in_step = all(beat.phase in STEP_PHASES and beat.step > furthest for beat in beats)
        return len(beats) == self._start.workers and are_in_step
