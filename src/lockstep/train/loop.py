"""The training loop. Synchronizing, stepping, evaluating, saving and stopping are all decided in `_train_steps`."""

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from lockstep import faults, heartbeat
from lockstep.ablation import Ablation
from lockstep.config import RunConfig
from lockstep.dtypes import DTYPES
from lockstep.parallel.strategy import Claim, Context, Pause, Strategy
from lockstep.run.checkpoint import Progress
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Journal
from lockstep.tasks.scoring import EvaluationStopped
from lockstep.tasks.task import GlobalBatch, MicroBatch, Task
from lockstep.team import Team
from lockstep.train import precision
from lockstep.train.checkpointer import Checkpointer
from lockstep.train.display import Display
from lockstep.train.evaluation import Evaluator
from lockstep.train.prefetch import MicroBatchMaker, Prefetched, Prefetcher
from lockstep.train.probes import Probes
from lockstep.train.save_interval import find_launch_begin
from lockstep.train.schedule import learning_rate
from lockstep.train.start_model import load_start
from lockstep.train.step import Step, choose_optimizer
from lockstep.train.stop_signal import StopWish, TimeLimit
from lockstep.train.tensors import digest
from lockstep.watch.clock import PhaseClock
from lockstep.watch.sampler import WORKER_SOURCES, Sampler, list_host_sources

WARMUP_STEPS = 5
"""The first steps of a launch fill caches and memory pools: they are journalled as warm-up and left out of averages."""


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
    attempt: int  # launches of this run so far, with this one
    probes: Probes
    checkpointer: Checkpointer
    ablation: Ablation
    start_folder: Path | None = None  # of the model whose weights the first launch of a fine-tuning starts with
    sampled_gpus: list[str] | None = None  # UUIDs, if this worker samples its host for all workers there
    progress: Progress = field(default_factory=Progress)
    display: Display | None = None  # of the primary
    parameters: int = 0
    last_warmup_step: int = 0

    def train(self) -> str:
        """Trains until the steps are done, patience or time runs out or a signal comes; returns which."""
        limit, saves = TimeLimit(self.config.train.max_hours, find_launch_begin()), self.checkpointer
        watches_time = self.team.primary or self.team.elastic
        self.stop = StopWish(limit, watches_time, lambda: saves.expected_seconds, lambda: saves.has_failed)
        self.clock = PhaseClock(self.team.device)
        self.micro_batches = MicroBatchMaker(self.task, self.team.device, self.ablation, WARMUP_STEPS)
        self._set_up_strategy()
        self.progress = self.checkpointer.resume(self.progress, self.attempt)
        self._open_display()
        saves.begin(self.progress, self.evaluator.saves_before_the_end(self.progress.step))
        self.last_warmup_step = self.progress.step + WARMUP_STEPS
        sources = WORKER_SOURCES | list_host_sources(self.sampled_gpus)
        show_sample = self.display.sample if self.display is not None else None
        sampler = Sampler(self.journal, self.config.watch.sample_seconds, socket.gethostname(), sources, show_sample)
        self.prefetcher = self._start_prefetcher()
        try:
            reason = self._train_steps()
            self.checkpointer.finish(self.team.deciders() if self.strategy.takes_every_step else self.team.alone())
            self._note_uploads()
            self.progress = self.strategy.leave(self.progress, reason, self.checkpointer.ensure_saved)
            self.strategy.finish()
        finally:
            self.prefetcher.close()
            self.checkpointer.close()
            sampler.close()
            self.strategy.close()
            if self.display is not None:
                self.display.close()
            self.stop.signal.restore()
        return self._note_stop(reason)

    def _train_steps(self) -> str:
        """Takes steps until there is a reason to stop, and returns it."""
        evaluator, strategy = self.evaluator, self.strategy
        if self._missed_evaluation():
            reason = strategy.peer_stop_reason or self._make_up_evaluation()
        else:
            reason = strategy.peer_stop_reason or evaluator.reason_to_stop(self.progress)
        if reason == "finished":
            steps = self.config.train.steps
            self._notify(f"Nothing to do: step {self.progress.step:,} is reached and train.steps is {steps:,}.")
        repeated: Prefetched | None = None  # the input of a step that must be repeated
        while reason is None:
            # 1. Who takes part? A worker that was behind has copied a peer's state and continues from there.
            self.clock.start()
            heartbeat.begin_step(self.progress.step + 1)
            peer_progress = strategy.synchronize(self.progress)
            if peer_progress is not None:
                self.progress, repeated = peer_progress, None
                self.prefetcher.close()
                self.prefetcher = self._start_prefetcher()
                reason = strategy.peer_stop_reason or evaluator.reason_to_stop(self.progress)
                continue
            self.clock.mark("merge")

            # 2. The next share of a global batch, prepared in the background.
            claim, micro_batches = repeated or next(self.prefetcher, (None, ()))
            if claim is None:
                return "signal"  # the stop signal came before the first step
            if isinstance(claim, Pause):
                stop = claim.stop
            else:
                # 3. Forward, backward, exchange, update.
                agreed_stop = self._take_step(claim, micro_batches)
                repeated = (claim, micro_batches) if agreed_stop is None else None
                if agreed_stop is None or not strategy.takes_every_step:
                    continue  # repeat the step; asynchronous workers only stop at pauses
                stop = agreed_stop
            self._advance(claim)

            # 4. All workers have completed the same step: evaluate, save, stop.
            reason = evaluator.reason_to_stop(self.progress) or ("signal" if stop else None)
            if not self.ablation.active:
                reason = self._evaluate_and_save(claim.step, reason)
            if reason == "patience" and isinstance(claim, Pause) and not claim.stop:
                strategy.agree(0.0, stop=True)  # the other workers have continued during the evaluation
                reason = None
        return reason

    def _take_step(self, planned: Claim[GlobalBatch], micro_batches: Sequence[MicroBatch]) -> bool | None:
        """Computes and journals one step; returns whether all workers stop after it, or None if it must be repeated."""
        step, clock, strategy = planned.step, self.clock, self.strategy
        if planned.recomputed:
            self.journal.write("fault", what="recomputed: the worker that had claimed it died", step=step)
        faults.set_step(step)
        faults.at("input")
        clock.mark("input")
        claim = strategy.begin(planned, self.task.order)
        clock.mark("merge")
        if claim is not planned:
            micro_batches = self.micro_batches.make(claim)
            clock.mark("input")
        rate = learning_rate(self.config.schedule, step, self.config.train.steps, self.task.width)
        outcome = self.step.compute(claim, micro_batches, rate)
        if outcome.retry is not None:
            self.step.note_retry(step, outcome.retry)
            return None
        outcome, agreed = strategy.end_step(outcome, self.step.loss_sums, self.stop.is_there)
        line = self.step.finish(claim, micro_batches, rate, outcome, agreed, warmup=step <= self.last_warmup_step)
        if self.progress.lineage and strategy.elastic:
            line["branch"] = self.progress.lineage[-1][0]
        clock.overhead = 0.0
        begin = time.perf_counter()
        self.journal.write_step(line)
        if self.display is not None:
            self.display.step(line)
        self._note_uploads()
        self.stop.limit.add_step(line["seconds"])
        self.checkpointer.schedule.add_step(line["seconds"])
        clock.overhead += time.perf_counter() - begin
        self.evaluator.count_skipped(self.progress, step, outcome.applied)
        self.probes.after_step(line["words"]["target"], self.parameters)
        return agreed.stop

    def _advance(self, claim: Claim[GlobalBatch] | Pause[GlobalBatch]) -> None:
        """Notes that all workers have completed this step."""
        self.progress.step = claim.step
        self.progress.epoch, self.progress.cursor = claim.batch.after.epoch, claim.batch.after.cursor
        self.progress.score = self.progress.loss = None

    def _evaluate_and_save(self, step: int, reason: str | None) -> str | None:
        """Evaluates and saves what is due after this step; returns the reason to stop, which an evaluation may give."""
        evaluates = reason != "signal" and self.evaluator.is_evaluated(step)
        saves = reason is not None or self.evaluator.is_saved(step)
        if not (evaluates or saves):
            return reason
        with self.strategy.snapshot() as snapshot:
            if evaluates:
                snapshot.prepare_evaluation()
            if saves:  # first: an evaluation takes long, and the run may die in it
                self.checkpointer.save(snapshot, self.progress, last=reason is not None)
            if not evaluates:
                return reason
            try:
                is_best = self.evaluator.evaluate(snapshot, self.progress)
            except EvaluationStopped:
                reason = self._stop_in_evaluation(reason)
                if reason is not None and not saves:
                    self.checkpointer.save(snapshot, self.progress, last=True)
                return reason
            stop = self.strategy.agree(0.0, self.stop.is_there).stop
            reason = reason or self.evaluator.reason_to_stop(self.progress) or ("signal" if stop else None)
            if saves:
                self.checkpointer.note_score(snapshot, self.progress)
            elif is_best or reason:
                self.checkpointer.save(snapshot, self.progress, last=reason is not None)
        return reason

    def _stop_in_evaluation(self, reason: str | None) -> str | None:
        """Returns why to stop after a signal ended an evaluation: the resumed run repeats it. Workers that evaluate by
        themselves only ask to stop, and do so together with the others after a later step, if there is one."""
        self.progress.is_evaluation_missed = True
        if reason is None and (self.strategy.elastic or not self.strategy.takes_every_step):
            self.strategy.agree(0.0, stop=True)
            return None
        return "signal"

    def _set_up_strategy(self) -> None:
        device, settings = self.team.device, self.config.train
        torch.manual_seed(settings.seed)
        module = load_start(self.task.module(), self.start_folder).to(device)
        self.parameters = sum(parameter.numel() for parameter in module.parameters())
        scale = precision.choose_loss_scale(self.precision, self.strategy.sends_gradients_in)
        dtype = DTYPES[self.precision]
        context = Context(
            self.team, settings.clip, scale, dtype, self.ablation, self.journal, self.attempt, self._notify
        )
        example = self.task.example().to(device)
        self.strategy.setup(module, choose_optimizer(self.config.optimizer), self.clock, context, example)
        self.probes.watch(module, self.clock)
        autocast = precision.autocast(self.precision, device)
        self.step = Step(
            self.strategy, self.clock, self.probes, self.journal, autocast, device, settings.seed, self.attempt
        )
        hears_stop, schedule = lambda: self.strategy.hear_stop(self.stop.is_there), self.checkpointer.schedule
        self.evaluator = Evaluator(
            settings, self.task, self.journal, autocast, self.attempt, self.ablation, hears_stop, schedule
        )

    def _missed_evaluation(self) -> bool:
        """Whether the run stopped or died between its last checkpoint and that step's evaluation."""
        if self.strategy.healed or self.progress.score is not None or self.progress.step == 0:
            return False
        return self.progress.is_evaluation_missed or self.evaluator.is_evaluated(self.progress.step)

    def _make_up_evaluation(self) -> str | None:
        """Makes the missed evaluation; returns why to stop, the same for all workers. Asynchronous workers start when the
        first one has its snapshot, and learn from it later if patience has run out."""
        reason_before = self.evaluator.reason_to_stop(self.progress)
        with self.strategy.snapshot() as snapshot:
            if not self.strategy.takes_every_step:
                self.team.gather(None)
            try:
                self.evaluator.evaluate(snapshot, self.progress)
            except EvaluationStopped:
                return self._stop_in_evaluation(reason_before)
            self.checkpointer.note_score(snapshot, self.progress)
        reason = self.evaluator.reason_to_stop(self.progress)
        if self.strategy.takes_every_step:
            return reason
        if reason is not None and reason_before is None:
            self.strategy.agree(0.0, stop=True)
        return reason_before

    def _start_prefetcher(self) -> Prefetcher[Prefetched]:
        batches = self.task.batches(self.progress.epoch, self.progress.cursor)
        claims = self.strategy.claims(self.task.order, batches, self.progress.step + 1, self.evaluator.is_due)
        prepared = ((claim, self.micro_batches.make(claim)) for claim in claims)
        return Prefetcher(prepared, self.strategy.prefetch_depth)

    def _open_display(self) -> None:
        if not self.team.primary:
            return
        step, device = self.progress.step, self.team.device
        self.display = self.evaluator.display = Display(self.run, self.task, self.team.size, self.config.train, step)
        if self._missed_evaluation() or self.evaluator.reason_to_stop(self.progress) is None:
            self.display.announce_start(step, self.parameters, self.strategy.name, self.precision, device)

    def _note_uploads(self) -> None:
        """Journals and shows what uploads have done since the last call."""
        for news in self.checkpointer.collect_news():
            self.journal.write(news.kind, **news.facts)
            if news.sentence:
                self._notify(news.sentence, "yellow")

    def _note_stop(self, reason: str) -> str:
        """Journals why this worker stops, and returns it. The end of the time is no signal: no launcher starts it again."""
        why = self.stop.explain(reason, is_independent=not (self.strategy.takes_every_step or self.team.primary))
        facts = {"digest": digest(self.strategy.state().tensors)} if self.strategy.elastic else {}
        self.journal.write("stop", reason=why, step=self.progress.step, signal=self.stop.signal.name, **facts)
        return why if why == "max_hours" else reason

    def _notify(self, sentence: str, style: str = "") -> None:
        if self.display is not None:
            self.display.say(sentence, style)
