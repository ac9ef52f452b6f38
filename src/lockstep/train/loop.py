"""The training loop. What happens at a step boundary is written at the step boundary."""

import hashlib
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from lockstep import faults
from lockstep.ablation import disabled
from lockstep.config import RunConfig
from lockstep.dtypes import DTYPES
from lockstep.errors import LockstepError
from lockstep.parallel.adamw import AdamW
from lockstep.parallel.resilient.membership import Membership
from lockstep.parallel.sgd import Sgd
from lockstep.parallel.strategy import Claim, Context, MakeOptimizer, Pause, Snapshot, Strategy
from lockstep.run.best import Evaluation
from lockstep.run.checkpoint import Progress
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Journal
from lockstep.tasks.task import GlobalBatch, MicroBatch, Task
from lockstep.team import Team
from lockstep.train import precision
from lockstep.train.checkpointer import Checkpointer
from lockstep.train.display import Display
from lockstep.train.prefetch import Prefetcher
from lockstep.train.probes import Probes
from lockstep.train.schedule import learning_rate
from lockstep.train.stop_signal import StopSignal
from lockstep.train.tensors import digest
from lockstep.train.train_settings import OptimizerSettings
from lockstep.watch.clock import PhaseClock
from lockstep.watch.sampler import OF_HOST, OF_WORKER, Sampler

WARMUP_STEPS = 5
"""The first steps of a launch fill caches and pools: they are journalled as warm-up and left out of averages."""
READY_MADE = WARMUP_STEPS
"""Batches that a run without input uses again and again: so many as the warm-up needs."""


Prepared = tuple[Claim[GlobalBatch] | Pause[GlobalBatch], Sequence[MicroBatch]]


@dataclass
class Loop:
    """One worker's training, from the last checkpoint to the last step."""

    config: RunConfig
    run: RunDirectory
    task: Task
    strategy: Strategy
    team: Team
    journal: Journal
    precision: str
    attempt: int
    probes: Probes
    saving: Checkpointer
    tells_of_host: bool = True  # does this worker sample its host, for all workers there?
    progress: Progress = field(default_factory=Progress)
    display: Display | None = None  # of the primary
    parameters: int = 0
    warm: int = 0  # the last step of the warm-up
    made: list[Sequence[MicroBatch]] = field(default_factory=list)  # where input is left out
    company: Membership | None = None  # where workers come and go

    def train(self) -> str:
        """Trains until the steps are done, patience runs out or a signal comes; returns which."""
        settings, device = self.config.train, self.team.device
        stop_signal = StopSignal()
        clock = PhaseClock(device)
        forward = precision.autocast(self.precision, device)
        self._set_up(clock)
        if self.strategy.members is not None:
            self.company = Membership(self.strategy.members, self.journal, self.team.size, self.attempt, self._say)
        self._resume()
        if self.team.primary:
            self.display = Display(self.run, self.task, self.team.size, settings.steps, self.progress.step)
            if self._missed_evaluation() or self._reason_to_stop() is None:
                self.display.say(self._start())
        ahead = self._ahead()
        held: Prepared | None = None  # the input of a step that has to be taken again
        self.warm = self.progress.step + WARMUP_STEPS
        shown = self.display.sample if self.display is not None else None
        sources = OF_WORKER | (OF_HOST if self.tells_of_host else {})
        sampler = Sampler(self.journal, self.config.watch.sample_seconds, socket.gethostname(), sources, shown)
        try:
            missed = self._missed_evaluation()
            reason = self._ending() or (self._make_up(forward) if missed else self._reason_to_stop())
            if reason == "finished":
                self._say(
                    f"Nothing to do: step {self.progress.step:,} is reached and train.steps is {settings.steps:,}."
                )
            while reason is None:
                clock.start()
                healed = self.company.meet(self.progress).progress if self.company is not None else None
                if healed is not None:
                    self.progress = healed
                    ahead.close()  # the data stands elsewhere
                    ahead, held = self._ahead(), None
                    reason = self._ending() or self._reason_to_stop()
                    continue
                clock.mark("merge")
                claim, micro_batches = held or next(ahead, (None, ()))
                if claim is None:
                    reason = "signal"  # it came before anything was begun
                    break
                if isinstance(claim, Pause):
                    step, told = claim.step, claim.stop
                    self._reach(claim)
                else:
                    step = claim.step
                    counted = self._step(claim, micro_batches, clock, forward, stop_signal)
                    held = (claim, micro_batches) if counted is None else None
                    if counted is None:
                        continue
                    told = counted
                    if not self.strategy.together:
                        continue
                    self._reach(claim)

                reason = self._reason_to_stop() or ("signal" if told else None)
                if disabled():
                    continue
                evaluates = reason != "signal" and self._evaluated(step)
                saves = reason is not None or step % settings.checkpoint_every == 0
                if not (evaluates or saves):
                    continue
                with self.strategy.snapshot() as snapshot:
                    if saves:  # first: an evaluation takes long, and may be what the run dies of
                        self.saving.save(snapshot, self.progress)
                    if evaluates:
                        is_best = self._evaluate(snapshot, forward)
                        told = self.strategy.agree(0.0, stop_signal.name is not None).stop
                        reason = reason or self._reason_to_stop() or ("signal" if told else None)
                        if saves:
                            self.saving.note_score(snapshot, self.progress)
                        elif is_best or reason:
                            self.saving.save(snapshot, self.progress)
                if reason == "patience" and isinstance(claim, Pause) and not claim.stop:
                    self.strategy.agree(0.0, stop=True)  # the others have gone on meanwhile
                    reason = None
            self.saving.wait_for_uploads(self.team.deciders() if self.strategy.together else self.team.alone())
            self._tell_news()
            if self.company is not None:
                self._leave_together(self.company, reason)
            self.strategy.finish()
        finally:
            ahead.close()
            sampler.close()
            if self.company is not None:
                self.company.close()
            if self.display is not None:
                self.display.close()
            stop_signal.restore()
        facts = {} if self.company is None else {"digest": digest(self.strategy.state().tensors)}
        told = reason == "signal" and stop_signal.name is None and not (self.strategy.together or self.team.primary)
        said = "told by another worker" if told else reason
        self.journal.write("stop", reason=said, step=self.progress.step, signal=stop_signal.name, **facts)
        return reason

    def _ahead(self) -> Prefetcher[Prepared]:
        batches = self.task.batches(self.progress.epoch, self.progress.cursor)
        claims = self.strategy.claims(self.task.order, batches, self.progress.step + 1, self._due)
        return Prefetcher(((claim, self._ready(claim)) for claim in claims), self.strategy.ahead)

    def _step(
        self,
        claim: Claim[GlobalBatch],
        micro_batches: Sequence[MicroBatch],
        clock: PhaseClock,
        forward: Callable[[], AbstractContextManager[Any]],
        stop_signal: StopSignal,
    ) -> bool | None:
        """Computes and journals one step; returns whether all were told to stop after it, or None when it did not count
        and has to be taken again."""
        step, batch = claim.step, claim.batch
        if claim.recomputed:
            self.journal.write("fault", what="computed again: the worker that had claimed it died", step=step)
        if self.strategy.members is not None:
            claim, planned = self.strategy.members.revise(claim, self.task.order), claim
            micro_batches = micro_batches if claim is planned else self._ready(claim)
        faults.step(step)
        faults.at("input")
        clock.mark("input")
        self.strategy.begin(claim)
        clock.mark("merge")

        torch.manual_seed(_seed(self.config.train.seed, step, claim.part))
        loss_sums, counting = [], self.probes.counting()
        for number, micro in enumerate(micro_batches):
            if number:
                faults.at("micro")
            with self.strategy.micro(last=number + 1 == len(micro_batches)), counting:
                faults.at("forward")
                begin = time.perf_counter()
                with forward():
                    loss_sum = self.strategy.module(micro.to(self.team.device))
                if faults.at("gradient") == "nan":
                    loss_sum = loss_sum * float("nan")
                clock.mark("forward")
                faults.at("backward")
                faults.slow("backward", 3 * (time.perf_counter() - begin))  # before gradients leave
                self.probes.before_backward()
                self.strategy.backward(loss_sum, claim.target_words)
                clock.mark("backward")
                loss_sums.append(loss_sum.detach())

        rate = learning_rate(self.config.schedule, step, self.config.train.steps, self.task.width)
        outcome = self.strategy.commit(rate)
        clock.mark("update")
        if outcome.retry is not None:
            facts = {"what": "merge failed, step taken again", "detail": outcome.retry}
            self.journal.write("fault", step=step, seconds=clock.finish()[0], **facts)
            return None

        agreed = self.strategy.agree(float(sum(loss_sums)), stop_signal.name is not None)
        clock.mark("merge")

        seconds, phases = clock.finish()
        words = {
            "source": sum(micro.source_words for micro in micro_batches),
            "target": sum(micro.target_words for micro in micro_batches),
        }
        line = {
            "step": step,
            "epoch": batch.after.epoch,
            "loss": agreed.loss_sum / claim.target_words,
            "lr": rate,
            "grad_norm": outcome.grad_norm,
            "words": words,
            "seconds": seconds,
            "phases": phases,
            "merge_overlapped": outcome.merge_overlapped,
            "bytes_sent": outcome.bytes_sent,
            "cursor": batch.after.cursor,
            "attempt": self.attempt,
            "scope": "global" if self.strategy.lockstep else "worker",
            "warmup": step <= self.warm,
            "applied": outcome.applied,
            "batch": batch.digest,
            "global_target_words": batch.target_words,
            "watching": clock.own,  # of the step before: this one's line is not written yet
        }
        if self.progress.lineage and self.strategy.members is not None:
            line["branch"] = self.progress.lineage[-1][0]
        if outcome.sums:
            line["sums"] = {"count": outcome.sums, "seconds": outcome.sums_seconds, "bytes": outcome.sums_bytes}
        if outcome.staleness is not None:
            line |= {"part": claim.part, "staleness": outcome.staleness}
        clock.own = 0.0
        begin = time.perf_counter()
        self.journal.write("step", **line)
        if self.display is not None:
            self.display.step(line)
        self._tell_news()
        clock.own += time.perf_counter() - begin
        self._count_skipped(step, outcome.applied)
        self.probes.after_step(words["target"], self.parameters)
        return agreed.stop

    def _reach(self, claim: Claim[GlobalBatch] | Pause[GlobalBatch]) -> None:
        """All workers stand after this step."""
        self.progress.step = claim.step
        self.progress.epoch, self.progress.cursor = claim.batch.after.epoch, claim.batch.after.cursor
        self.progress.score = self.progress.loss = None

    def _evaluated(self, step: int) -> bool:
        """Is the model scored after this step?"""
        every, last = self.config.train.evaluate_every, self.config.train.steps
        return every is not None and (step % every == 0 or step >= last)

    def _due(self, step: int) -> bool:
        """Is the model looked at after this step?"""
        settings = self.config.train
        looked_at = self._evaluated(step) or step % settings.checkpoint_every == 0
        return (looked_at and not disabled()) or step >= settings.steps

    def _ready(self, claim: Claim[GlobalBatch] | Pause[GlobalBatch]) -> Sequence[MicroBatch]:
        """The tensors of a share, made in the background."""
        if isinstance(claim, Pause):
            return []
        if "input" in disabled() and len(self.made) == READY_MADE:
            return self.made[claim.step % READY_MADE]
        begin = time.perf_counter()
        micro_batches = list(self.task.micro_batches(claim.share, claim.step))
        for _ in range(claim.empty_micro_batches):
            micro_batches += self.task.micro_batches(claim.share[:0], claim.step)
        faults.slow("input", time.perf_counter() - begin)
        if self.team.device.type == "cuda":
            micro_batches = [micro.pin() for micro in micro_batches]
        if len(self.made) < READY_MADE and disabled():
            self.made.append(micro_batches)
        return micro_batches

    def _set_up(self, clock: PhaseClock) -> None:
        device = self.team.device
        torch.manual_seed(self.config.train.seed)
        module = self.task.module().to(device)
        self.parameters = sum(parameter.numel() for parameter in module.parameters())
        scale = precision.FIRST_LOSS_SCALE if self.precision == "fp16" else None
        context = Context(self.team, self.config.train.clip, scale, DTYPES[self.precision])
        self.strategy.setup(module, _optimizer(self.config.optimizer), clock, context, self.task.example().to(device))
        self.probes.watch(module, clock)

    def _leave_together(self, company: Membership, reason: str) -> None:
        """Meets once more, so that whoever is behind heals before its peers are gone. When somebody came or went
        meanwhile the last checkpoint or its score may be missing, and they meet again."""
        while True:
            meeting = company.meet(self.progress, ending=reason)
            self.progress = meeting.progress or self.progress
            if not meeting.regrouped:
                return
            saved = self.saving.of(self.progress)
            if disabled() or (saved is not None and saved.score == self.progress.score):
                continue
            with self.strategy.snapshot() as snapshot:
                if saved is None:
                    self.saving.save(snapshot, self.progress)
                else:
                    self.saving.note_score(snapshot, self.progress)

    def _resume(self) -> None:
        """Goes on where a living peer stands, else goes back to the newest whole checkpoint, if there is one."""
        company = self.company
        meeting = company.meet(self.progress) if company is not None else None
        if meeting is not None and meeting.progress is not None:
            self.progress = meeting.progress
            return
        saved, reset = self.saving.newest(), list[str]()
        if saved is not None:
            self.progress, reset = self.saving.load(saved)
        elif self.attempt == 1 and company is None:
            return  # a first start
        branch = company.branch(self.progress, meeting) if company is not None and meeting is not None else {}
        facts = {"checkpoint": None if saved is None else saved.path.name, "reset": reset} | branch
        self.journal.write("resume", step=self.progress.step, attempt=self.attempt, **facts)

    def _ending(self) -> str | None:
        """Why the peer from which this worker healed was about to stop."""
        return None if self.company is None else self.company.ending

    def _missed_evaluation(self) -> bool:
        """Did the run stop or die between its last checkpoint and that step's evaluation?"""
        if (
            (self.company is not None and self.company.healed)
            or self.progress.score is not None
            or self.progress.step == 0
        ):
            return False
        return self._evaluated(self.progress.step)

    def _make_up(self, forward: Callable[[], AbstractContextManager[Any]]) -> str | None:
        """Makes the evaluation that was missed; returns why to stop, the same for all workers. Where they go their own way
        the first alone evaluates: the others begin when it has read the model, and learn from it that patience is out."""
        known = self._reason_to_stop()
        with self.strategy.snapshot() as snapshot:
            if not self.strategy.together:
                self.team.gather(None)
            self._evaluate(snapshot, forward)
            self.saving.note_score(snapshot, self.progress)
        found = self._reason_to_stop()
        if self.strategy.together:
            return found
        if found is not None and known is None:
            self.strategy.agree(0.0, stop=True)
        return known

    def _reason_to_stop(self) -> str | None:
        patience = self.config.train.patience
        if patience is not None and self.progress.evaluations_without_gain >= patience:
            return "patience"
        return "finished" if self.progress.step >= self.config.train.steps else None

    def _count_skipped(self, step: int, applied: bool) -> None:
        if applied:
            self.progress.skipped_in_a_row = 0
            return
        self.progress.skipped += 1
        self.progress.skipped_in_a_row += 1
        self.journal.write("fault", what="gradient not finite, step left out", step=step)
        if self.progress.skipped_in_a_row >= self.config.train.max_skipped:
            raise LockstepError(
                f"The gradient was not finite (NaN or infinite) in {self.progress.skipped_in_a_row} steps in a row, "
                f"up to step {step}.",
                "Lower the learning rate (schedule.peak or schedule.factor), set train.clip, or use train.precision=fp32.",
            )

    def _evaluate(self, snapshot: Snapshot, forward: Callable[[], AbstractContextManager[Any]]) -> bool:
        """Scores the model on the validation text; returns whether it is the best so far. Same result on all workers
        of the party."""
        if snapshot.team is None:
            return False
        begin = time.perf_counter()
        snapshot.module.eval()
        scores = self.task.evaluate(snapshot.module, snapshot.team, forward)
        snapshot.module.train()
        seconds = time.perf_counter() - begin
        progress, higher_is_better = self.progress, self.task.higher_is_better
        evaluation = Evaluation(progress.step, scores.values[self.task.metric], scores.values.get("loss"))
        best = progress.best
        has_better_score = best is None or evaluation.has_better_score_than(best, higher_is_better)
        progress.evaluations_without_gain = 0 if has_better_score else progress.evaluations_without_gain + 1
        is_best = best is None or evaluation.is_better_than(best, higher_is_better)
        if is_best:
            progress.best = evaluation
        progress.score, progress.loss = evaluation.score, evaluation.loss
        self.journal.write(
            "evaluation",
            step=progress.step,
            scores=scores.values,
            signature=scores.signature,
            seconds=seconds,
            best=is_best,
            attempt=self.attempt,
            examples=[list(example) for example in scores.examples] if self.team.primary else [],
        )
        if self.display is not None:
            self.display.evaluation(progress.step, scores, seconds, is_best)
        return is_best

    def _tell_news(self) -> None:
        """Journals and shows what uploads have done meanwhile."""
        for news in self.saving.news():
            self.journal.write(news.kind, **news.facts)
            if news.sentence:
                self._say(news.sentence, "yellow")

    def _say(self, sentence: str, style: str = "") -> None:
        if self.display is not None:
            self.display.say(sentence, style)

    def _start(self) -> str:
        """What is said first."""
        start = f"Going on from step {self.progress.step:,}" if self.progress.step else "Starting"
        workers, threads = self.team.size, torch.get_num_threads()
        emulated = " (emulated: this CPU has none, and fp32 is faster)"
        products = self.precision + emulated * precision.emulated(self.precision, self.team.device)
        return (
            f"{start}: {self.parameters:,} parameters, {workers} worker{'s' * (workers > 1)} ({self.strategy.name}), "
            f"{threads} thread{'s' * (threads > 1)} each, {products}, {self.team.device.type}"
        )


def _optimizer(settings: OptimizerSettings) -> MakeOptimizer:
    if settings.name == "sgd":
        decay, momentum = settings.weight_decay, settings.momentum
        return partial(Sgd, momentum=momentum, nesterov=settings.nesterov, weight_decay=decay)
    return partial(AdamW, betas=settings.betas, epsilon=settings.epsilon, weight_decay=settings.weight_decay)


def _seed(seed: int, step: int, part: int) -> int:
    """A random stream for every share of every step, so that none has to be carried through a checkpoint."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{step}:{part}".encode(), digest_size=8).digest(), "little") >> 1
