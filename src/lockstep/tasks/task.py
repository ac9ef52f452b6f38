"""The interface between the training loop and what is learned."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.data.corpus.batches import GlobalBatch, Order
from lockstep.team import Team


class MicroBatch(Protocol):
    """Tensors that the module takes in one forward. "Words" are whatever the task counts in."""

    @property
    def source_words(self) -> int: ...
    @property
    def target_words(self) -> int: ...

    def pin(self) -> "MicroBatch":
        """In memory that a GPU can fetch from while it computes."""
        ...

    def to(self, device: torch.device) -> "MicroBatch": ...


@dataclass(frozen=True)
class Scores:
    """The result of an evaluation. `values` go to journal and TensorBoard by name."""

    values: dict[str, float]
    signature: str = ""
    examples: tuple[tuple[str, str, str], ...] = ()  # source, translation, reference


class Task(Protocol):
    """Builds data and model, and knows how good the model is."""

    order: Order  # how a global batch is cut for the workers
    metric: str  # the name in Scores.values that decides what is best
    higher_is_better: bool
    unit: str  # what the loss is a mean over and speed is counted in: "words", "images"
    width: int  # model width, for the noam schedule
    data_folder: Path  # where the prepared data lies
    data_facts: dict[str, Any]  # becomes data.json in the run; its `digest` names the data

    def module(self) -> nn.Module:
        """A new model whose forward takes a micro-batch and returns the sum of the loss over its target words."""
        ...

    def batches(self, epoch: int, cursor: int) -> Iterator[GlobalBatch]:
        """The sequence of global batches from a place in it on."""
        ...

    def micro_batches(self, share: np.ndarray, step: int) -> Sequence[MicroBatch]:
        """The tensors of a worker's share of a step; called in the background. What is random in them may depend on the
        step and on the example, never on the worker. An empty share makes one micro-batch that counts for nothing."""
        ...

    def example(self) -> MicroBatch:
        """A micro-batch to try the model with. Nothing is learned from it."""
        ...

    def evaluate(self, module: nn.Module, team: Team, autocast: Callable[[], Any]) -> Scores:
        """Called by all workers of the team together, with the module in evaluation mode."""
        ...

    def export(self, module: nn.Module, folder: Path) -> None:
        """Writes the model so that it can be used without the trainer."""
        ...


def total(team: Team, values: Tensor) -> list[float]:
    """Sums of a small tensor over all workers, in rank order, so that every worker gets the same bits."""
    return torch.tensor(team.gather(values.tolist()), dtype=torch.float64).sum(0).tolist()
