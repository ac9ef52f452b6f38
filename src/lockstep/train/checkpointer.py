"""The checkpoints of a run, as the loop uses them: save, add a score, upload, find, load.

A save in the background has three moments. `save` copies the state and has the writer process write it. `collect_news`
notices after a later step that the primary's writer is done. `settle` lets all workers wait for the end, and tells all of
them when one has failed; it comes before the next save, before a score is added and at the end.
"""

import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

from lockstep import heartbeat
from lockstep.config import RunConfig
from lockstep.errors import LockstepError
from lockstep.notices import warn
from lockstep.parallel.strategy import Snapshot, Strategy
from lockstep.remote.mirror import Mirror
from lockstep.remote.place import is_remote
from lockstep.run.checkpoint import Checkpoint, Progress, find_newest_whole, read_checkpoint
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Event, Journal
from lockstep.run.retention import Keep, keep_best_and_last, sweep
from lockstep.tasks.task import Task
from lockstep.team import Team
from lockstep.train import checkpoint_files
from lockstep.train.background_writer import BackgroundWriter, MemoryLayout, is_supported
from lockstep.train.checkpoint_parts import CheckpointPart, Failure, SaveFailed
from lockstep.train.run_home import RunHome
from lockstep.train.save_interval import SaveSchedule
from lockstep.train.step import choose_optimizer
from lockstep.train.writer_process import Completion

SLOW_DISK = 50e6
"""Bytes per second that a save is expected to write before one was measured."""

TURN_SECONDS = 1.0
"""How long workers wait for a write before they ask each other again whether one has failed."""


class _NewestCheckpoint(TypedDict):
    """What the primary tells the other workers about the newest whole checkpoint."""

    path: str | None
    manifest: dict[str, Any]
    skipped: list[str]  # a sentence about each newer one


class OwnPart(TypedDict):
    """What a worker tells the others about its part of a save."""

    is_written: bool
    bytes: int
    failure: Failure | None


@dataclass
class PendingSave:
    """A save that the workers have not settled yet."""

    progress: Progress
    stall: float  # seconds for which training waited
    is_journalled: bool = False


@dataclass
class Checkpointer:
    """Writes and reads the checkpoints of one run, together with the workers that a snapshot names."""

    config: RunConfig
    run: RunDirectory
    task: Task
    strategy: Strategy
    team: Team
    journal: Journal
    attempt: int  # launches of this run so far, with this one
    mirror: Mirror | None = None  # of the primary, when the run is on an object store
    home: RunHome | None = None  # None: this worker sees the run folder
    _writer: BackgroundWriter | None = None
    _pending: PendingSave | None = None
    _saves: int = 0  # in this launch
    _events: list[Event] = field(default_factory=list)
    _is_short_of_memory: bool = False
    _longest_save: float = 0.0  # seconds, with what was written in the background

    def __post_init__(self) -> None:
        self.schedule = SaveSchedule(self.config.train)

    def begin(self, progress: Progress, saves_before_the_end: bool) -> None:
        """Called when it is settled where the run continues. A launch that saves only at its end needs no writer."""
        self.schedule.continue_from(progress.step, progress.save_every)
        if saves_before_the_end:
            self._start_writer()

    def _start_writer(self) -> None:
        """Starts the writer process, and makes memory for the state. A worker that writes nothing has none."""
        writes = self.strategy.writes and (self.strategy.takes_every_step or self.team.primary)
        if self._writer is None and writes and self.config.train.save == "background" and is_supported():
            self._writer = BackgroundWriter()
            self._writer.memory.reserve(self._estimate_size())

    def _estimate_size(self) -> int:
        """Returns about how many bytes this worker copies at a save. More memory is made when it is needed."""
        model = sum(one.numel() * one.element_size() for one in self.strategy.raw_module.parameters())
        moments = len(choose_optimizer(self.config.optimizer)({}).MOMENTS)
        workers = self.team.size if self.strategy.takes_every_step else 1
        return max(model if self.team.primary else 0, (1 + moments) * model // workers)

    @property
    def expected_seconds(self) -> float:
        """What a save takes whose end is waited for, and the end of one that is being written."""
        return self._longest_save or self._estimate_size() / SLOW_DISK

    def save(self, snapshot: Snapshot, progress: Progress, last: bool = False) -> None:
        """Saves in the background if it can. Of the `last` save of a launch it returns when the checkpoint is complete."""
        team = snapshot.team
        if team is None or not self.strategy.writes:
            return
        heartbeat.beat("save")
        self.settle(team)
        begin = time.perf_counter()
        self.wait_for_uploads(team)  # before anything that they copy could be deleted
        self._choose_interval(team, progress)
        state = self.strategy.state()
        module = snapshot.prepare_export()
        export = lambda folder: self.task.export(module, folder)  # noqa: E731
        files = checkpoint_files.collect_files(progress.step, state, export, team)
        self._saves += 1
        token = f"{self.attempt}-{self._saves}" + (f"-{os.getpid()}" if self.team.elastic else "")
        part = CheckpointPart(self.run.checkpoints, progress.step, token, team.rank, team.size)
        facts, config = checkpoint_files.make_facts(progress, state), self.config.model_dump(mode="json")
        layout, service = MemoryLayout(files), None if self.home is None else self.home.service
        if not last and self._has_room(team, layout):
            assert self._writer is not None
            completion: Completion = {"progress": facts, "config": config, "keep": self._list_keep(progress)}
            self._writer.start(part, layout, completion if team.primary else None, service)
            self._pending = PendingSave(replace(progress), time.perf_counter() - begin)
            return
        size, failure = checkpoint_files.write_now(part, files, team, facts, config, self._keep(progress), service)
        if failure is not None:
            self._handle_failure(progress.step, failure, last)
            return
        self._note_saved(progress, size, time.perf_counter() - begin, 0.0)
        if self.team.elastic:
            self._start_writer()  # this worker has not written before

    def _choose_interval(self, team: Team, progress: Progress) -> None:
        """Chooses when the next save is due, by the primary's figures."""
        if not self.schedule.is_automatic:
            return
        chosen = team.gather(self.schedule.choose())[0]
        if chosen is not None:
            if team.primary:
                self.journal.write("interval", step=progress.step, **chosen)
            progress.save_every = int(chosen["every"])
        self.schedule.continue_from(progress.step, progress.save_every)

    def _has_room(self, team: Team, layout: MemoryLayout) -> bool:
        """Whether all workers can copy their part into memory. All of them find the same."""
        has_room = self._writer is not None and self._writer.memory.reserve(layout.size)
        if self._writer is not None and not has_room and not self._is_short_of_memory:
            self._is_short_of_memory = True
            sentence = (
                f"There is no memory for a copy of {layout.size / 1e6:,.0f} MB: training waits while it is saved."
            )
            self._events.append(Event("fault", sentence, {"what": "saved without the background", "detail": sentence}))
        return all(team.gather(has_room))

    @property
    def has_failed(self) -> bool:
        """Whether this worker's part of the last save could not be written, and training must end."""
        failure = self._find_failure()
        return failure is not None and not self._is_tolerated(failure)

    def _find_failure(self) -> Failure | None:
        answer = self._writer.answer if self._writer is not None and self._pending is not None else None
        return None if answer is None else answer["failure"]

    def _is_tolerated(self, failure: Failure) -> bool:
        return failure["is_disk_full"] and self.config.train.disk_full == "warn"

    def settle(self, team: Team, last: bool = False) -> None:
        """Lets all workers wait until the last save is complete, in short turns: a slow disk must not look like a lost
        worker. Raises its failure on all of them."""
        pending, writer = self._pending, self._writer
        if pending is None or writer is None:
            return
        begin, turn, done = time.perf_counter(), 0.0, False
        size, failures = 0, list[Failure]()
        while not done:
            writer.hurry()
            is_written = writer.wait(turn)
            turn = 0.0 if failures else TURN_SECONDS
            if failures and not is_written and team.primary:
                writer.restart()  # it may wait for a part that will never come
                is_written = True
            own_size = 0 if writer.answer is None else writer.answer["bytes"]
            own: OwnPart = {"is_written": is_written, "bytes": own_size, "failure": self._find_failure()}
            parts = team.gather(own)
            heartbeat.beat("save")
            done, size = all(part["is_written"] for part in parts), parts[0]["bytes"]
            failures += [part["failure"] for part in parts if part["failure"] is not None]
        self._pending = None
        if failures:
            worst = min(failures, key=self._is_tolerated)
            self._handle_failure(pending.progress.step, worst, last, is_known=pending.is_journalled)
        elif not pending.is_journalled:
            self._note_saved(pending.progress, size, pending.stall + time.perf_counter() - begin, writer.seconds)

    def _handle_failure(self, step: int, failure: Failure, last: bool, is_known: bool = False) -> None:
        """Raises a failure unless training may continue without this checkpoint."""
        if last or not self._is_tolerated(failure):
            raise SaveFailed(step, failure)
        if not is_known:
            self._note_skipped(step, failure)

    def _note_skipped(self, step: int, failure: Failure) -> None:
        if self.team.primary or self.team.elastic:
            sentence = f"{SaveFailed(step, failure).message} Training continues, and the next save tries again."
            facts: dict[str, str | int | float | None] = {"what": "checkpoint not written", "step": step}
            self._events.append(Event("fault", sentence, facts | {"detail": sentence}))

    def _note_saved(self, progress: Progress, size: int, stall: float, background: float) -> None:
        facts = {"step": progress.step, "bytes": size, "seconds": stall, "background_seconds": background}
        self.journal.write("checkpoint", **facts)
        self.schedule.add_save(stall, background)
        self._longest_save = max(self._longest_save, stall + background)
        self._upload(progress)

    def note_score(self, snapshot: Snapshot, progress: Progress) -> None:
        """Adds the score to the checkpoint of this step, which was saved before its evaluation."""
        if snapshot.team is None or not self.strategy.writes:
            return
        self.settle(snapshot.team)
        snapshot.team.primary_does(
            lambda: checkpoint_files.note_score(self._path(progress), progress, self._keep(progress))
        )
        self._upload(progress)

    def find(self, progress: Progress) -> Checkpoint | None:
        """Returns the checkpoint of this step, if there is one."""
        return read_checkpoint(self._path(progress))

    def ensure_saved(self, progress: Progress) -> None:
        """Saves the last checkpoint or its score again, if a worker died before it had done so."""
        if self.strategy.context.ablation.active:
            return
        self.settle(self.team.alone())
        checkpoint = self.find(progress)
        if checkpoint is not None and checkpoint.score == progress.score:
            return
        with self.strategy.snapshot() as snapshot:
            if checkpoint is None:
                self.save(snapshot, progress, last=True)
            else:
                self.note_score(snapshot, progress)

    def resume(self, progress: Progress, attempt: int) -> Progress:
        """Continues from a live peer's state, otherwise from the newest whole checkpoint, if there is one. Returns where
        the run stands."""
        peer_progress = self.strategy.synchronize(progress)
        if peer_progress is not None:
            return peer_progress
        checkpoint, reset = self.find_newest(), list[str]()
        if checkpoint is not None:
            progress, reset = self.load(checkpoint)
        branch = self.strategy.start_branch(progress)
        if checkpoint is None and attempt == 1 and not branch:
            return progress  # the first start of a run
        name = None if checkpoint is None else checkpoint.path.name
        self.journal.write("resume", step=progress.step, attempt=attempt, checkpoint=name, reset=reset, **branch)
        return progress

    def find_newest(self) -> Checkpoint | None:
        """Returns the newest whole checkpoint, and removes what an interrupted launch left half-written."""
        deciders = self.team.deciders()
        newest = deciders.primary_does(self._describe_newest)
        checkpoint = None if newest["path"] is None else Checkpoint(Path(newest["path"]), newest["manifest"])
        skipped = newest["skipped"]
        if self.strategy.writes:
            deciders.primary_does(lambda: sweep(self.run.checkpoints))
        for sentence in skipped if self.team.primary else ():
            self.journal.write("fault", what="damaged checkpoint skipped", detail=sentence)
            warn(f"Checkpoint {sentence}: skipped.")
        if checkpoint is None and skipped:
            raise LockstepError(
                f"No checkpoint in {self.run.checkpoints} is whole ({'; '.join(skipped)}).",
                "Move the run folder away to start from the beginning.",
            )
        return checkpoint

    def _describe_newest(self) -> "_NewestCheckpoint":
        checkpoint, skipped = find_newest_whole(self.run.checkpoints)
        if checkpoint is None:
            return {"path": None, "manifest": {}, "skipped": skipped}
        return {"path": str(checkpoint.path), "manifest": checkpoint.manifest, "skipped": skipped}

    def load(self, checkpoint: Checkpoint) -> tuple[Progress, list[str]]:
        """Restores the state; returns where the run stood, and a sentence for everything that had to be reset."""
        copy = checkpoint if self.home is None else self.home.fetch(self.team, checkpoint)
        checkpoint_files.load(copy, self.strategy.state().tensors)
        progress = checkpoint.progress()
        reset = self.strategy.load(progress.scalars, checkpoint_files.find_private(copy))
        if self.home is not None:
            self.home.drop_copy(self.team)
        if self.mirror is not None:
            self.mirror.upload(checkpoint, self._keep(progress))  # does nothing if it came from there
        return progress, reset

    def wait_for_uploads(self, team: Team) -> None:
        """Lets all workers of a team wait for the primary's uploads, in short turns: a slow store must not look like a lost
        worker."""
        turn = min(30.0, self.team.timeout_seconds / 4)
        while is_remote(self.run.name) and not team.primary_does(lambda: self.mirror is None or self.mirror.wait(turn)):
            heartbeat.beat("save")

    def collect_news(self) -> list[Event]:
        """Returns what the writer process and uploads have done since the last call. Raises WriterDied."""
        self._look_for_answer()
        events, self._events = self._events, []
        return events + (self.mirror.take_events() if self.mirror is not None else [])

    def _look_for_answer(self) -> None:
        pending, writer = self._pending, self._writer
        if pending is None or writer is None or pending.is_journalled or not writer.wait(0.0):
            return
        if not (self.team.primary or self.team.elastic):
            return  # its part is written; only the primary knows of the others
        failure = self._find_failure()
        if failure is None and writer.answer is not None:
            self._note_saved(pending.progress, writer.answer["bytes"], pending.stall, writer.seconds)
            pending.is_journalled = True
        elif failure is not None and self._is_tolerated(failure):
            self._note_skipped(pending.progress.step, failure)
            pending.is_journalled = True

    def finish(self, team: Team) -> None:
        """Lets all workers of a team wait until everything is saved and uploaded."""
        self.settle(team, last=True)
        self.wait_for_uploads(team)

    def close(self) -> None:
        """Ends the writer process."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _path(self, progress: Progress) -> Path:
        return self.run.checkpoints / f"step-{progress.step:08d}"

    def _list_keep(self, progress: Progress) -> tuple[int, int, bool, int | None]:
        settings = self.config.train
        return settings.keep_last, settings.keep_best, self.task.higher_is_better, progress.best_step

    def _keep(self, progress: Progress) -> Keep:
        return keep_best_and_last(*self._list_keep(progress))

    def _upload(self, progress: Progress) -> None:
        checkpoint = self.find(progress) if self.mirror is not None else None
        if self.mirror is not None and checkpoint is not None:
            self.mirror.upload(checkpoint, self._keep(progress))
