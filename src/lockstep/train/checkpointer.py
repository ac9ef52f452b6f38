"""The checkpoints of a run as the loop makes them: saved, scored, kept, mirrored, found again. It knows no steps."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lockstep.config import RunConfig
from lockstep.errors import LockstepError
from lockstep.notices import warn
from lockstep.parallel.strategy import Snapshot, Strategy
from lockstep.remote.mirror import Mirror, News
from lockstep.remote.place import is_remote
from lockstep.run.checkpoint import Checkpoint, Progress, find_newest_whole, read_checkpoint
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Journal
from lockstep.tasks.task import Task
from lockstep.team import Team
from lockstep.train import checkpoint_files


@dataclass(frozen=True)
class Checkpointer:
    config: RunConfig
    run: RunDirectory
    task: Task
    strategy: Strategy
    team: Team
    journal: Journal
    mirror: Mirror | None  # of the primary, when the run lies on an object store

    def save(self, snapshot: Snapshot, progress: Progress) -> None:
        """By all workers of the party, or by the one that leads."""
        if snapshot.team is None or not self._writes:
            return
        begin = time.perf_counter()
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
        """The checkpoint of this step was saved before its evaluation."""
        if snapshot.team is None or not self._writes:
            return
        snapshot.team.primary_does(
            lambda: checkpoint_files.note_score(self._path(progress), progress, self._keep(progress))
        )
        self._upload(progress)

    def of(self, progress: Progress) -> Checkpoint | None:
        """The checkpoint of this very step, if there is one."""
        return read_checkpoint(self._path(progress))

    def newest(self) -> Checkpoint | None:
        """The newest whole checkpoint. What an interrupted launch left half-written is removed."""
        party = self.team.deciders()
        saved, passed = party.primary_does(lambda: find_newest_whole(self.run.checkpoints))
        if self._writes:
            party.primary_does(lambda: checkpoint_files.sweep(self.run.checkpoints))
        for sentence in passed if self.team.primary else ():
            self.journal.write("fault", what="damaged checkpoint passed over", detail=sentence)
            warn(f"Checkpoint {sentence}: passed over.")
        if saved is None and passed:
            raise LockstepError(
                f"No checkpoint in {self.run.checkpoints} is whole ({'; '.join(passed)}).",
                "Move the run folder away to start from the beginning.",
            )
        return saved

    def load(self, saved: Checkpoint) -> tuple[Progress, list[str]]:
        """Puts the state in place; returns where the run stood, and what of the state could not be taken over."""
        checkpoint_files.load(saved, self.strategy.state().tensors, self.team.deciders())
        progress = saved.progress()
        reset = self.strategy.load(progress.scalars, checkpoint_files.private(saved))
        if self.mirror is not None:
            self.mirror.upload(saved, self._keep(progress))  # unless it came from there
        return progress, reset

    def wait_for_uploads(self, party: Team) -> None:
        """All wait for those of the primary together, in short turns: a slow store must not look like a lost worker."""
        turn = min(30.0, self.team.timeout_seconds / 4)
        while is_remote(self.run.name) and not party.primary_does(
            lambda: self.mirror is None or self.mirror.wait(turn)
        ):
            pass

    def news(self) -> list[News]:
        """Of what uploads have done meanwhile."""
        return self.mirror.news() if self.mirror is not None else []

    @property
    def _writes(self) -> bool:
        """Where workers come and go, only the one that leads."""
        return self.strategy.members is None or self.strategy.members.leads

    def _path(self, progress: Progress) -> Path:
        return self.run.checkpoints / f"step-{progress.step:08d}"

    def _keep(self, progress: Progress) -> Callable[[list[Checkpoint]], set[Path]]:
        settings, higher_is_better = self.config.train, self.task.higher_is_better
        return checkpoint_files.keep_best_and_last(
            settings.keep_last, settings.keep_best, higher_is_better, progress.best_step
        )

    def _upload(self, progress: Progress) -> None:
        saved = self.of(progress) if self.mirror is not None else None
        if self.mirror is not None and saved is not None:
            self.mirror.upload(saved, self._keep(progress))
