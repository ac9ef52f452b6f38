"""The checkpoints of a run, as the loop uses them: save, add a score, upload, find, load."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from lockstep import heartbeat
from lockstep.config import RunConfig
from lockstep.errors import LockstepError
from lockstep.notices import warn
from lockstep.parallel.strategy import Snapshot, Strategy
from lockstep.remote.mirror import Mirror, MirrorEvent
from lockstep.remote.place import is_remote
from lockstep.run.checkpoint import Checkpoint, Progress, find_newest_whole, read_checkpoint
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Journal
from lockstep.run.retention import Keep, keep_best_and_last, sweep
from lockstep.tasks.task import Task
from lockstep.team import Team
from lockstep.train import checkpoint_files


class _NewestCheckpoint(TypedDict):
    """What the primary tells the other workers about the newest whole checkpoint."""

    path: str | None
    manifest: dict[str, Any]
    skipped: list[str]  # a sentence about each newer one


@dataclass(frozen=True)
class Checkpointer:
    """Writes and reads the checkpoints of one run, together with the workers that a snapshot names."""

    config: RunConfig
    run: RunDirectory
    task: Task
    strategy: Strategy
    team: Team
    journal: Journal
    mirror: Mirror | None  # of the primary, when the run is on an object store

    def save(self, snapshot: Snapshot, progress: Progress) -> None:
        if snapshot.team is None or not self.strategy.writes:
            return
        begin = time.perf_counter()
        heartbeat.beat("save")
        self.wait_for_uploads(snapshot.team)  # before anything that they copy could be deleted
        size = checkpoint_files.save(
            self.run.checkpoints,
            progress,
            self.config.model_dump(mode="json"),
            self.strategy.state(),
            lambda folder: self.task.export(snapshot.module, folder),
            snapshot.team,
            self._keep(progress),
        )
        self._upload(progress)
        self.journal.write("checkpoint", step=progress.step, bytes=size, seconds=time.perf_counter() - begin)

    def note_score(self, snapshot: Snapshot, progress: Progress) -> None:
        """Adds the score to the checkpoint of this step, which was saved before its evaluation."""
        if snapshot.team is None or not self.strategy.writes:
            return
        snapshot.team.primary_does(
            lambda: checkpoint_files.note_score(self._path(progress), progress, self._keep(progress))
        )
        self._upload(progress)

    def find(self, progress: Progress) -> Checkpoint | None:
        """Returns the checkpoint of this step, if there is one."""
        return read_checkpoint(self._path(progress))

    def ensure_saved(self, progress: Progress) -> None:
        """Saves the last checkpoint or its score again, if a worker died before it had done so."""
        checkpoint = self.find(progress)
        if checkpoint is not None and checkpoint.score == progress.score:
            return
        with self.strategy.snapshot() as snapshot:
            if checkpoint is None:
                self.save(snapshot, progress)
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
        checkpoint_files.load(checkpoint, self.strategy.state().tensors, self.team.deciders())
        progress = checkpoint.progress()
        reset = self.strategy.load(progress.scalars, checkpoint_files.private(checkpoint))
        if self.mirror is not None:
            self.mirror.upload(checkpoint, self._keep(progress))  # does nothing if it came from there
        return progress, reset

    def wait_for_uploads(self, team: Team) -> None:
        """Lets all workers of a team wait for the primary's uploads, in short turns: a slow store must not look like a lost
        worker."""
        turn = min(30.0, self.team.timeout_seconds / 4)
        while is_remote(self.run.name) and not team.primary_does(lambda: self.mirror is None or self.mirror.wait(turn)):
            heartbeat.beat("save")

    def collect_news(self) -> list[MirrorEvent]:
        """Returns what uploads have done since the last call."""
        return self.mirror.take_events() if self.mirror is not None else []

    def _path(self, progress: Progress) -> Path:
        return self.run.checkpoints / f"step-{progress.step:08d}"

    def _keep(self, progress: Progress) -> Keep:
        settings, higher_is_better = self.config.train, self.task.higher_is_better
        return keep_best_and_last(settings.keep_last, settings.keep_best, higher_is_better, progress.best_step)

    def _upload(self, progress: Progress) -> None:
        checkpoint = self.find(progress) if self.mirror is not None else None
        if self.mirror is not None and checkpoint is not None:
            self.mirror.upload(checkpoint, self._keep(progress))
