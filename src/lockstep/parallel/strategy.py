"""The interface between the training loop and the way gradients cross processes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.parallel.adamw import AdamW

MakeOptimizer = Callable[[dict[str, nn.Parameter]], AdamW]
B = TypeVar("B")
B_contra = TypeVar("B_contra", contravariant=True)


class Order(Protocol[B_contra]):
    """How a global batch is cut for the workers."""

    def share(self, batch: B_contra, worker: int, workers: int) -> np.ndarray: ...


@dataclass(frozen=True)
class Claim(Generic[B]):
    """What this worker does in one step: its share of a global batch."""

    batch: B
    share: np.ndarray


@dataclass(frozen=True)
class Outcome:
    """What became of a step."""

    applied: bool  # False: the gradient was not finite and all workers left it out
    grad_norm: float
    bytes_sent: int = 0
    merge_overlapped: float = 0.0


@dataclass(frozen=True)
class Agreed:
    """What the workers found together at a step boundary."""

    loss_sum: float
    stop: bool


@dataclass
class State:
    """Everything a strategy must find again: named tensors and scalars that mean the same under every strategy."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)


class Clock(Protocol):
    """The phase clock, as far as a strategy uses it."""

    def stamp(self) -> Any: ...
    def between(self, begin: Any, end: Any) -> float: ...
    def move(self, source: str, target: str, seconds: float) -> None: ...


@dataclass(frozen=True)
class Context:
    """Where a strategy runs."""

    rank: int
    size: int
    device: torch.device
    clip: float | None  # largest gradient norm
    loss_scale: float | None  # starting scale of fp16 losses; None: no scaling


class Strategy(Protocol):
    """How the workers' gradients become one update."""

    name: str
    lockstep: bool  # does every worker take part in every step?
    exact: bool  # is a bit-identical resume promised?

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

    def claims(self, order: Order[B], batches: Iterator[B]) -> Iterator[Claim[B]]:
        """This worker's part of the steps to come; read ahead in the background."""
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

    def quiesce(self) -> AbstractContextManager[nn.Module]:
        """A consistent model for evaluation and saving."""
        ...

    def state(self) -> State:
        """The live tensors: saving reads them, loading writes them in place."""
        ...

    def load(self, scalars: dict[str, float]) -> list[str]:
        """Takes over scalars after the tensors were filled; returns what had to be reset."""
        ...
