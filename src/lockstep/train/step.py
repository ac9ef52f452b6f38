"""One training step of one worker: forward and backward over its micro-batches, exchange, update, one journal line."""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from lockstep import faults, heartbeat
from lockstep.parallel.optimizers import AdamW, MakeOptimizer, Sgd
from lockstep.parallel.strategy import Agreed, Claim, Outcome, Strategy
from lockstep.run import environment_variables
from lockstep.run.journal import Journal, StepLine, Words
from lockstep.tasks.task import GlobalBatch, MicroBatch
from lockstep.train.probes import Probes
from lockstep.train.train_settings import OptimizerSettings
from lockstep.watch.clock import PhaseClock

Autocast = Callable[[], AbstractContextManager[object]]


@dataclass
class Step:
    """Computes steps. `seed`, step and share together seed the random stream of each."""

    strategy: Strategy
    clock: PhaseClock
    probes: Probes
    journal: Journal
    autocast: Autocast
    device: torch.device
    seed: int
    attempt: int
    death: tuple[float, str] | None = field(default_factory=environment_variables.last_death)

    def compute(self, claim: Claim[GlobalBatch], micro_batches: Sequence[MicroBatch], rate: float) -> Outcome:
        """Takes one update. The phases that the clock marks are those of the journal."""
        strategy, clock, probes = self.strategy, self.clock, self.probes
        torch.manual_seed(derive_seed(self.seed, claim.step, claim.part))
        self.loss_sums = list[Tensor]()  # of this worker's micro-batches, each over their target words
        self._note_batch(claim, micro_batches)
        counting = probes.count_flops()
        for number, micro in enumerate(micro_batches):
            if number:
                faults.at("micro")
            # Gradients add up over the micro-batches. Only the last one sends them.
            with strategy.micro(last=number + 1 == len(micro_batches)), counting:
                heartbeat.beat("forward")
                faults.at("forward")
                begin = time.perf_counter()
                with self.autocast():
                    loss_sum = strategy.module(micro.to(self.device))  # a scalar: summed over target words
                if faults.at("gradient") == "nan":
                    loss_sum = loss_sum * float("nan")
                clock.mark("forward")
                heartbeat.beat("backward")
                faults.at("backward")
                faults.slow("backward", 3 * (time.perf_counter() - begin))  # before gradients leave
                probes.before_backward()
                # The loss is a sum over words, divided by the words of all shares in this update.
                strategy.backward(loss_sum, claim.target_words)
                clock.mark("backward")
                self.loss_sums.append(loss_sum.detach())
        heartbeat.beat("update")
        outcome = strategy.commit(rate)  # completes the exchange, clips, updates
        clock.mark("update")
        heartbeat.beat("merge")  # what follows waits for the others
        return outcome

    def finish(
        self,
        claim: Claim[GlobalBatch],
        micro_batches: Sequence[MicroBatch],
        rate: float,
        outcome: Outcome,
        agreed: Agreed,
        warmup: bool,
    ) -> StepLine:
        """Reads the clock and returns the step's journal line."""
        self._note_restart()
        seconds, phases = self.clock.finish()
        batch = claim.batch
        words: Words = {
            "source": sum(micro.source_words for micro in micro_batches),
            "target": sum(micro.target_words for micro in micro_batches),
        }
        heartbeat.note_work(words["target"], seconds - phases["merge"], phases["input"])
        line: StepLine = {
            "step": claim.step,
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
            "scope": "global" if self.strategy.makes_one_update else "worker",
            "warmup": warmup,
            "applied": outcome.applied,
            "batch": batch.digest,
            "global_target_words": batch.target_words,
            "watching": self.clock.overhead,  # of the step before: this line is not written yet
        }
        if outcome.sums:
            line["sums"] = {"count": outcome.sums, "seconds": outcome.sums_seconds, "bytes": outcome.sums_bytes}
        if outcome.staleness is not None:
            line["part"], line["staleness"] = claim.part, outcome.staleness
        return line

    @staticmethod
    def _note_batch(claim: Claim[GlobalBatch], micro_batches: Sequence[MicroBatch]) -> None:
        """Tells the monitor what is being computed."""
        words = sum(micro.target_words for micro in micro_batches)
        longest = [getattr(micro, "longest", (0, 0)) for micro in micro_batches] or [(0, 0)]  # images have none
        heartbeat.note_batch(len(claim.share), words, *map(max, zip(*longest, strict=True)))

    def _note_restart(self) -> None:
        """Journals how long it took from the death of a worker to this first step of the launch that replaces it."""
        if self.death is not None and environment_variables.rank() == 0:
            moment, sentence = self.death
            self.journal.write("fault", what="restarted", detail=sentence, seconds=time.time() - moment)
        self.death = None

    def note_retry(self, step: int, reason: str) -> None:
        """Journals that an exchange failed and the step is repeated."""
        seconds = self.clock.finish()[0]
        self.journal.write("fault", step=step, seconds=seconds, what="exchange failed, step repeated", detail=reason)


def derive_seed(seed: int, step: int, part: int) -> int:
    """Returns the seed of one share of one step, so that no random state has to be saved in checkpoints."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{step}:{part}".encode(), digest_size=8).digest(), "little") >> 1


def choose_optimizer(settings: OptimizerSettings) -> MakeOptimizer:
    if settings.name == "sgd":
        decay, momentum = settings.weight_decay, settings.momentum
        return partial(Sgd, momentum=momentum, nesterov=settings.nesterov, weight_decay=decay)
    return partial(AdamW, betas=settings.betas, epsilon=settings.epsilon, weight_decay=settings.weight_decay)
