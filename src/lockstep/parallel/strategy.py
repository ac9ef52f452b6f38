"""The interface between the training loop and the way gradients cross processes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.parallel.optimizers import Optimizer
from lockstep.run.checkpoint import Progress
from lockstep.team import Team

MakeOptimizer = Callable[[dict[str, nn.Parameter]], Optimizer]
"""Can be pickled: parameter servers are told it."""
FindTensor = Callable[[str], Tensor | None]
"""A private tensor of a checkpoint by its name, if it has one."""


class Batch(Protocol):
    """A global batch, as far as a strategy looks into it."""

    @property
    def indices(self) -> np.ndarray: ...
    @property
    def target_words(self) -> int: ...


B = TypeVar("B", bound=Batch)
B_contra = TypeVar("B_contra", bound=Batch, contravariant=True)


class BatchSplitter(Protocol[B_contra]):
    """How a global batch is cut for the workers."""

    def share(self, batch: B_contra, worker: int, workers: int) -> np.ndarray: ...
    def target_words(self, share: np.ndarray) -> int: ...
    def micro_batches(self, share: np.ndarray) -> list[np.ndarray]: ...


@dataclass(frozen=True)
class Claim(Generic[B]):
    """What this worker does in one step: a share of a global batch."""

    step: int
    batch: B
    share: np.ndarray
    target_words: int  # what its loss is divided by: of all workers whose gradients are summed
    part: int  # which share; the worker's number where every worker has one of every batch
    recomputed: bool = False  # a worker had claimed it and died
    empty_micro_batches: int = 0  # micro-batches to add that count for nothing, where all workers need equally many


@dataclass(frozen=True)
class Pause(Generic[B]):
    """Stands between claims where workers do not move step by step together: every step up to this one is applied, and
    none beyond it has begun."""

    step: int
    batch: B
    stop: bool  # somebody asked for it


@dataclass(frozen=True)
class Outcome:
    """What became of a step."""

    applied: bool  # False: the gradient was not finite and all workers left it out
    grad_norm: float
    bytes_sent: int = 0
    merge_overlapped: float = 0.0
    retry: str | None = None  # why the step does not count and has to be taken again, with the same global batch
    staleness: int | None = None  # updates by others between the parameters that were used and this update
    sums: int = 0  # small ones in the middle of the passes, at which all wait for each other (batch norm)
    sums_seconds: float = 0.0  # what they took, within merge
    sums_bytes: int = 0  # of bytes_sent


@dataclass(frozen=True)
class Agreed:
    """What the workers found together at a step boundary."""

    loss_sum: float
    stop: bool


@dataclass(frozen=True)
class Snapshot:
    """A model that holds still, and who looks at it together."""

    module: nn.Module
    team: Team | None  # who evaluates and saves with this worker; None: others do


@dataclass
class State:
    """Everything a strategy must find again: named tensors and scalars that mean the same under every strategy. What
    only the strategy itself can use is `private`; a name that holds a worker's number is that worker's own."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    private: dict[str, Tensor] = field(default_factory=dict)


class Clock(Protocol):
    """The phase clock, as far as a strategy uses it."""

    def stamp(self) -> Any: ...
    def between(self, begin: Any, end: Any) -> float: ...
    def since(self, begin: Any) -> float: ...
    def move(self, source: str, target: str, seconds: float) -> None: ...


@dataclass(frozen=True)
class Context:
    """Where a strategy runs."""

    team: Team
    clip: float | None  # largest gradient norm
    loss_scale: float | None  # starting scale of fp16 losses; None: no scaling
    products: torch.dtype = torch.float32  # number format of matrix products

    @property
    def rank(self) -> int:
        return self.team.rank

    @property
    def size(self) -> int:
        return self.team.size

    @property
    def device(self) -> torch.device:
        return self.team.device


@dataclass(frozen=True)
class QuorumView:
    """Who takes part in the next step."""

    quorum: int  # a number that all participants know
    participants: tuple[int, ...]  # workers
    regrouped: bool  # since the last meeting somebody came or went, or a merge failed
    failures: list[str] = field(default_factory=list)  # attempts to meet that came to nothing
    seconds: float = 0.0
    progress: Progress | None = None  # this worker was behind: where the others stand, whose state it has now
    source: int | None = None  # the worker that it healed from
    ending: str | None = None  # why the others are about to stop


class Members(Protocol):
    """What a strategy whose workers may come and go adds to a step."""

    @property
    def leads(self) -> bool:
        """Does this worker save for all?"""
        ...

    def meet(self, progress: Progress, ending: str | None = None) -> QuorumView:
        """Before a step, and once more before leaving, then with the reason."""
        ...

    def revise(self, claim: Claim[B], order: BatchSplitter[B]) -> Claim[B]:
        """The claim for who takes part now; the same object when it was right."""
        ...

    def close(self) -> None: ...


class Strategy(Protocol):
    """How the workers' gradients become one update."""

    name: str
    together: bool  # does every worker take part in every step?
    lockstep: bool  # do their gradients make one update, so that a step's loss is that of all?
    ahead: int  # how many claims may be prepared before they are computed
    exact: bool  # is a bit-identical resume promised?

    @property
    def members(self) -> Members | None:
        """None: the same workers from beginning to end."""
        ...

    @property
    def module(self) -> nn.Module:
        """batch -> sum of the loss over its target words; what the forward pass must call."""
        ...

    def setup(
        self,
        module: nn.Module,
        make_optimizer: MakeOptimizer,
        clock: Clock,
        context: Context,
        example: Any,
    ) -> None: ...

    def claims(
        self, order: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B] | Pause[B]]:
        """This worker's part of the steps to come, from step `first` on; read ahead in the background. A strategy whose
        workers are not `together` rests after steps at which something is `due`."""
        ...

    def begin(self, claim: Claim[B]) -> None:
        """Called when a claim is about to be computed."""
        ...

    def micro(self, last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward of a micro-batch: nothing is sent before the last one."""
        ...

    def backward(self, loss_sum: Tensor, target_words: int) -> None:
        """Gradients of the loss per target word, `target_words` counted over all workers."""
        ...

    def commit(self, learning_rate: float) -> Outcome:
        """Finite check, norm, clip, update."""
        ...

    def agree(self, loss_sum: float, stop: bool) -> Agreed: ...

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """A consistent model for evaluation and saving."""
        ...

    def state(self) -> State:
        """The live tensors: saving reads them, loading writes them in place."""
        ...

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        """Takes over scalars after the tensors were filled; returns what had to be reset."""
        ...

    def finish(self) -> None:
        """Called once, after the last step and the last save."""
        ...
