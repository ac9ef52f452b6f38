"""The base class of every strategy: how the workers' gradients become one update.

The defaults are those of one process that computes the whole global batch. A strategy's own file says only what is
different. The training loop calls the methods in this order: `setup`, `synchronize`, `load`, `start_branch`, `claims`, then
for every step `synchronize`, `begin`, `micro`, `backward`, `commit`, `end_step`, at evaluations and saves `snapshot` and
`state`, and at the end `leave`, `finish`, `close`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep import faults
from lockstep.ablation import Ablation
from lockstep.parallel.optimizers import MakeOptimizer
from lockstep.parallel.update import State, Updater
from lockstep.run.checkpoint import Progress
from lockstep.run.journal import Journal
from lockstep.team import Team

FindTensor = Callable[[str], Tensor | None]
"""Returns a private tensor of a checkpoint by its name, or None."""
Stamp = float | torch.cuda.Event
"""A point in time: seconds on CPU, an event in the stream on CUDA."""


class Batch(Protocol):
    """What a strategy reads of a global batch."""

    @property
    def indices(self) -> np.ndarray: ...
    @property
    def target_words(self) -> int: ...


B = TypeVar("B", bound=Batch)
B_contra = TypeVar("B_contra", bound=Batch, contravariant=True)


class BatchSplitter(Protocol[B_contra]):
    """Cuts a global batch into the workers' shares, and a share into micro-batches."""

    def share(self, batch: B_contra, worker: int, workers: int) -> np.ndarray: ...
    def target_words(self, share: np.ndarray) -> int: ...
    def micro_batches(self, share: np.ndarray) -> list[np.ndarray]: ...


@dataclass(frozen=True)
class Claim(Generic[B]):
    """What this worker computes in one step: a share of a global batch."""

    step: int
    batch: B
    share: np.ndarray
    target_words: int  # the loss is divided by this: the words of all workers whose gradients are summed
    part: int  # number of the share; the worker's rank where every worker has one share of every batch
    recomputed: bool = False  # the worker that had claimed it died
    empty_micro_batches: int = 0  # added so that all workers run equally many forward passes


@dataclass(frozen=True)
class Pause(Generic[B]):
    """A step boundary at which asynchronous workers wait until worker 0 has its snapshot: all steps up to and including
    this one are applied, no later one has begun. It comes in place of a claim."""

    step: int
    batch: B  # the last one, for the position in the data
    stop: bool  # a worker asked to stop


@dataclass(frozen=True)
class Outcome:
    """The result of a step."""

    applied: bool  # False: the gradient was not finite and all workers skipped the update
    grad_norm: float
    bytes_sent: int = 0
    merge_overlapped: float = 0.0  # seconds of exchange that backward hid
    retry: str | None = None  # why the step must be repeated with the same global batch
    staleness: int | None = None  # updates by others between reading the parameters and this update
    sums: int = 0  # number of small all-reduces inside forward and backward (batch norm)
    sums_seconds: float = 0.0  # their seconds, part of the merge phase
    sums_bytes: int = 0  # their bytes, part of bytes_sent
    unread_norm: Tensor | None = None  # on a device, of a gradient that the host has not judged yet


@dataclass(frozen=True)
class Agreed:
    """What the workers agreed on at a step boundary."""

    loss_sum: float
    stop: bool


class Snapshot:
    """A consistent model, and the workers that evaluate and save it together. `team` is None where other workers do."""

    def __init__(self, module: nn.Module, team: Team | None) -> None:
        self._module, self.team = module, team

    @property
    def module(self) -> nn.Module:
        """The whole model on this worker's device, to be evaluated. All workers of the team ask for it together."""
        return self._module

    def prepare_evaluation(self) -> None:
        """Called before a save by workers that will also evaluate, so that a sharded model is gathered once for both."""

    def prepare_export(self) -> nn.Module:
        """Returns the model that the primary exports. All workers of the team call it together; elsewhere than on the
        primary its parameters may be empty."""
        return self.module


class Clock(Protocol):
    """What a strategy uses of the phase clock."""

    def stamp(self) -> Stamp: ...
    def between(self, begin: Stamp, end: Stamp) -> float: ...
    def since(self, begin: Stamp) -> float: ...
    def move(self, source: str, target: str, seconds: float) -> None: ...


class StepClock(Clock, Protocol):
    """A clock whose phases a strategy ends, too."""

    def mark(self, phase: str) -> None: ...


@dataclass(frozen=True)
class Context:
    """Where a strategy runs, and whom it tells."""

    team: Team
    clip: float | None  # largest gradient norm
    loss_scale: float | None  # initial scale of fp16 losses; None: no scaling
    compute_dtype: torch.dtype = torch.float32  # of matrix products
    ablation: Ablation = field(default_factory=Ablation)
    journal: Journal | None = None  # elastic strategies write to it
    attempt: int = 1  # launches of this run so far, with this one
    notify: Callable[[str], None] = lambda _: None  # shows a sentence to the person at the terminal


class Strategy:
    """How gradients cross processes. The defaults suit a single process; `claims` and `agree` also serve a team that takes
    every step together."""

    name = "single"
    takes_every_step = True  # every worker takes part in every step
    makes_one_update = True  # the workers' gradients make one update, so a step's loss is that of all workers
    exact_resume = True  # a resumed run ends bit-identical to an uninterrupted one
    sends_gradients_in = "fp32"  # the number format
    elastic = False  # workers may die and come back while the others train
    prefetch_depth = 4  # claims that may be prepared before they are computed
    healed = False  # this worker copied the state of a peer, which waits for its gradients
    peer_stop_reason: str | None = None  # why that peer was about to stop

    updater: Updater

    def setup(
        self, module: nn.Module, make_optimizer: MakeOptimizer, clock: StepClock, context: Context, example: object
    ) -> None:
        """Takes the model over. `example` is a micro-batch that the model accepts."""
        self.raw_module, self.clock, self.context, self.team = module, clock, context, context.team
        self.silent = context.ablation.communication  # an ablation: everything is done but the sending
        self.connect(make_optimizer, example)

    def connect(self, make_optimizer: MakeOptimizer, example: object) -> None:
        """Builds what the strategy needs around the model."""
        self.updater = Updater(self.raw_module, make_optimizer, self.context.clip, self.context.loss_scale)

    @property
    def module(self) -> nn.Module:
        """The module that forward passes call: a micro-batch in, the sum of its loss over target words out."""
        return self.raw_module

    def synchronize(self, progress: Progress) -> Progress | None:
        """Settles who takes part in the next step, where workers may die and come back. Returns the progress of a peer
        when this worker has just copied that peer's state."""
        return None

    def claims(
        self, splitter: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B] | Pause[B]]:
        """Yields this worker's claims from step `first` on; the loop prefetches them. Strategies that do not take every
        step together pause after each step for which `due` is true."""
        for step, batch in enumerate(batches, first):
            share = splitter.share(batch, self.team.rank, self.team.size)
            yield Claim(step, batch, share, batch.target_words, self.team.rank)

    def begin(self, claim: Claim[B], splitter: BatchSplitter[B]) -> Claim[B]:
        """Called right before a claim is computed; returns the claim, cut differently if the workers changed."""
        return claim

    def micro(self, last: bool) -> AbstractContextManager[object]:
        """The context of one micro-batch's forward and backward pass. Gradients are sent in the last one only."""
        return nullcontext()

    def backward(self, loss_sum: Tensor, target_words: int) -> None:
        """Computes gradients of the loss per target word, counted over all workers."""
        self.updater.backward(loss_sum / target_words)

    def commit(self, learning_rate: float) -> Outcome:
        """Exchanges what is left, checks that the gradient is finite, clips it and updates the parameters. On a device the
        host does not wait: `end_step` reads what came of it."""
        faults.at("merge")
        return self.update(learning_rate)

    def update(self, learning_rate: float) -> Outcome:
        """Updates the parameters with the gradient that this worker has."""
        if self.team.device.type == "cpu":
            return Outcome(*self.updater.apply(learning_rate))
        return Outcome(True, math.nan, unread_norm=self.updater.apply_on_device(learning_rate))

    def end_step(self, outcome: Outcome, loss_sums: Sequence[Tensor], stop: bool) -> tuple[Outcome, Agreed]:
        """Ends the last phase of a step; returns what came of it and what the workers agreed on. `loss_sums` are those of
        this worker's micro-batches."""
        if self.team.device.type == "cpu":
            agreed = self.agree(float(sum(loss_sums)), stop)
            self.clock.mark("merge")
        else:
            outcome, agreed = self._read_step(outcome, loss_sums, stop)
        return self.settle(outcome), agreed

    def _read_step(self, outcome: Outcome, loss_sums: Sequence[Tensor], stop: bool) -> tuple[Outcome, Agreed]:
        """One copy brings everything that the host must know of a step, so that it waits for the device once."""
        loss = torch.stack(list(loss_sums)).sum().double()
        facts = torch.stack([loss, torch.full_like(loss, float(stop))])
        is_summed = self.takes_every_step and self.makes_one_update and not self.silent and self.team.size > 1
        if is_summed and faults.at("agree") != "skip":
            dist.all_reduce(facts, group=self.team.workers)
        self.clock.mark("merge")
        if outcome.unread_norm is not None:
            facts = torch.cat([facts, outcome.unread_norm.double().view(1)])
        loss_sum, stops, *norms = facts.tolist()
        if norms:
            judgement = self.updater.guard.judge(norms[0])
            outcome = replace(outcome, applied=judgement.finite, grad_norm=judgement.norm, unread_norm=None)
        return outcome, Agreed(loss_sum, stops > 0) if is_summed else self.agree(loss_sum, stop)

    def settle(self, outcome: Outcome) -> Outcome:
        """Completes the outcome with what the clock's stamps say. The device has reached all of them."""
        return outcome

    def agree(self, loss_sum: float, stop: bool) -> Agreed:
        """Returns the loss of all workers, and whether any of them wants to stop."""
        if self.silent or self.team.size == 1:
            return Agreed(loss_sum, stop)
        if faults.at("agree") == "skip":
            return Agreed(loss_sum, stop)
        both = torch.tensor([loss_sum, float(stop)], dtype=torch.float64, device=self.team.device)
        dist.all_reduce(both, group=self.team.workers)
        total, stops = both.tolist()
        return Agreed(total, stops > 0)

    def hear_stop(self, stop: bool) -> bool:
        """Called during an evaluation with this worker's wish to stop. Where workers evaluate by themselves it returns
        whether any worker has that wish."""
        return stop

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Gives a consistent model for evaluation and saving."""
        yield Snapshot(self.raw_module, self.team)

    def state(self) -> State:
        """Returns the live tensors: saving reads them, loading writes them in place."""
        return self.updater.state()

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        """Restores scalars after the tensors were filled; returns a sentence for everything that had to be reset."""
        return self.updater.load(scalars)

    def start_branch(self, progress: Progress) -> dict[str, list[tuple[str, int]]]:
        """Names the branch of steps that starts here, where workers may die and come back: adds it to `progress.lineage`
        and returns the lineage for the journal's resume line."""
        return {}

    def leave(self, progress: Progress, reason: str, ensure_saved: Callable[[Progress], None]) -> Progress:
        """Called before `finish`: peers that are behind catch up, and `ensure_saved` saves what one of them lost.
        Returns where the run stands."""
        return progress

    @property
    def writes(self) -> bool:
        """Whether this worker takes part in writing checkpoints. False: another worker writes for all."""
        return True

    def finish(self) -> None:
        """Called once, after the last step and the last save."""

    def close(self) -> None:
        """Called at the end, also after a failure."""
