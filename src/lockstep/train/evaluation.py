"""When a run is evaluated, what an evaluation changes, and when training ends."""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from inspect import signature

from torch import nn

from lockstep import heartbeat
from lockstep.ablation import Ablation
from lockstep.errors import LockstepError
from lockstep.parallel.strategy import Snapshot
from lockstep.run.best import Evaluation
from lockstep.run.checkpoint import Progress
from lockstep.run.journal import Journal
from lockstep.tasks.scoring import EvaluationStopped, ScoringProgress
from lockstep.tasks.task import Scores, Task
from lockstep.team import Team
from lockstep.train.display import Display
from lockstep.train.save_interval import SaveSchedule
from lockstep.train.train_settings import TrainSettings

LINE_EVERY_SECONDS = 1.0
"""Between two lines of the journal that say how far an evaluation is."""


@dataclass
class EvaluationDisplay:
    """Shows how far one evaluation is, in the journal and on the terminal."""

    step: int
    attempt: int
    journal: Journal
    display: Display | None
    _last_line: float = -math.inf

    def show(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last_line >= LINE_EVERY_SECONDS:
            self._last_line = now
            self.journal.write("evaluating", step=self.step, done=done, of=total, attempt=self.attempt)
        if self.display is not None:
            self.display.evaluating(done, total)


@dataclass
class Evaluator:
    """Decides what is due after a step, and evaluates snapshots."""

    settings: TrainSettings
    task: Task
    journal: Journal
    autocast: Callable[[], AbstractContextManager[object]]
    attempt: int
    ablation: Ablation
    wants_stop: Callable[[], bool]  # whether this worker, or one that evaluates apart from it, wants to stop
    schedule: SaveSchedule
    display: Display | None = None  # of the primary worker

    def is_evaluated(self, step: int) -> bool:
        """Whether the model is evaluated after this step."""
        every, last = self.settings.evaluate_every, self.settings.steps
        return every is not None and (step % every == 0 or step >= last)

    def is_saved(self, step: int) -> bool:
        """Whether the model is saved after this step, beside the end of the run."""
        return self.schedule.is_due(step)

    def saves_before_the_end(self, step: int) -> bool:
        """Whether one is saved between this step and the last one. Evaluations may find a best model, which is saved."""
        intervals = (self.schedule.every, self.settings.evaluate_every)
        nexts = [(step // every + 1) * every for every in intervals if every is not None]
        is_before = self.schedule.is_automatic or min(nexts) < self.settings.steps
        return is_before and not self.ablation.active

    def is_due(self, step: int) -> bool:
        """Whether a snapshot is needed after this step."""
        needed = self.is_evaluated(step) or self.is_saved(step)
        return (needed and not self.ablation.active) or step >= self.settings.steps

    def reason_to_stop(self, progress: Progress) -> str | None:
        patience = self.settings.patience
        if patience is not None and progress.evaluations_without_gain >= patience:
            return "patience"
        return "finished" if progress.step >= self.settings.steps else None

    def evaluate(self, snapshot: Snapshot, progress: Progress) -> bool:
        """Evaluates on the validation set and notes the result in `progress`; returns whether it is the best so far. All
        workers of the snapshot's team get the same result, or raise EvaluationStopped."""
        if snapshot.team is None:
            return False
        begin = time.perf_counter()
        heartbeat.beat("score")
        shown = EvaluationDisplay(progress.step, self.attempt, self.journal, self.display)
        scoring = ScoringProgress(snapshot.team, self.wants_stop, shown.show, self.settings.evaluate_sentences)
        try:
            scores = self._score(snapshot.module, snapshot.team, scoring)
        except EvaluationStopped:
            facts = {"attempt": self.attempt, "seconds": time.perf_counter() - begin}
            self.journal.write("evaluation_stopped", step=progress.step, **facts)
            raise
        seconds = time.perf_counter() - begin
        higher_is_better, best = self.task.higher_is_better, progress.best
        evaluation = Evaluation(progress.step, scores.values[self.task.metric], scores.values.get("loss"))
        has_better_score = best is None or evaluation.has_better_score_than(best, higher_is_better)
        progress.evaluations_without_gain = 0 if has_better_score else progress.evaluations_without_gain + 1
        is_best = best is None or evaluation.is_better_than(best, higher_is_better)
        if is_best:
            progress.best = evaluation
        progress.score, progress.loss = evaluation.score, evaluation.loss
        progress.is_evaluation_missed = False
        self.journal.write(
            "evaluation",
            step=progress.step,
            scores=scores.values,
            signature=scores.signature,
            seconds=seconds,
            best=is_best,
            attempt=self.attempt,
            examples=[] if self.display is None else [list(example) for example in scores.examples],
            scored=scoring.total or None,
            available=scoring.available or None,
            limited=scores.limited,
        )
        if self.display is not None:
            self.display.evaluation(progress.step, scores, seconds, is_best, scoring.total)
        return is_best

    def _score(self, module: nn.Module, team: Team, scoring: ScoringProgress) -> Scores:
        module.eval()
        try:
            if len(signature(self.task.evaluate).parameters) < 4:  # a user's task that cannot be stopped
                return self.task.evaluate(module, team, self.autocast)  # type: ignore[call-arg]
            with scoring.watch(module):
                return self.task.evaluate(module, team, self.autocast, scoring)
        finally:
            module.train()

    def count_skipped(self, progress: Progress, step: int, applied: bool) -> None:
        """Counts steps whose gradient was not finite, and ends the run after too many in a row."""
        if applied:
            progress.skipped_in_a_row = 0
            return
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        self.journal.write("fault", what="gradient not finite, update skipped", step=step)
        if progress.skipped_in_a_row >= self.settings.max_skipped:
            raise LockstepError(
                f"The gradient was not finite (NaN or infinite) in {progress.skipped_in_a_row} steps in a row, "
                f"up to step {step}.",
                "Lower the learning rate (schedule.peak or schedule.factor), set train.clip, or use train.precision=fp32.",
            )
