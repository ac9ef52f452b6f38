"""The interface between the training loop and a task."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.data.corpus.batches import GlobalBatch, Order
from lockstep.tasks.scoring import ScoringProgress
from lockstep.team import Team

Autocast = Callable[[], AbstractContextManager[object]]
"""Returns a context in which the forward pass runs in the precision of the run."""


class MicroBatch(Protocol):
    """The tensors of one forward pass. "Words" are what the task counts in, its `unit`."""

    @property
    def source_words(self) -> int: ...
    @property
    def target_words(self) -> int: ...

    def pin(self) -> "MicroBatch":
        """Returns a copy in pinned memory, from which a GPU copies while it computes."""
        ...

    def to(self, device: torch.device) -> "MicroBatch": ...


@dataclass(frozen=True)
class Scores:
    """The result of an evaluation. `values` are written to journal and TensorBoard by name."""

    values: dict[str, float]
    signature: str = ""  # of sacreBLEU
    examples: tuple[tuple[str, str, str], ...] = ()  # source, translation, reference
    limited: int = 0  # sentences whose translation or reference search.max_words cuts
    translations: tuple[str, ...] = ()  # of all sentences that were scored
    growth_seconds: float = field(default=0.0, compare=False)
    """How much longer the evaluation would take if translations were as long as the references."""


class Task(Protocol):
    """Opens the data, builds the model and evaluates it."""

    order: Order  # the order of the examples, and how a global batch is divided among the workers
    metric: str  # the name in Scores.values by which checkpoints are ranked
    higher_is_better: bool
    unit: str  # what the loss is a mean over and speed is counted in: "words", "images"
    width: int  # model width, for the noam schedule
    data_folder: Path  # where the prepared data is
    data_facts: dict[str, Any]  # written to data.json of the run; its `digest` identifies the data

    def module(self) -> nn.Module:
        """Returns a new model. Its forward takes a micro-batch and returns the loss, summed over the target words."""
        ...

    def batches(self, epoch: int, cursor: int) -> Iterator[GlobalBatch]:
        """Yields the global batches, starting at this position of the epoch."""
        ...

    def micro_batches(self, share: np.ndarray, step: int) -> Sequence[MicroBatch]:
        """Returns the tensors of a worker's share of a step. It is called in a background thread. Random augmentation
        may depend on the step and on the example, never on the worker. An empty share gives one micro-batch without
        target words."""
        ...

    def example(self) -> MicroBatch:
        """Returns a micro-batch for a trial forward pass. It must not change the model."""
        ...

    def evaluate(self, module: nn.Module, team: Team, autocast: Autocast, progress: ScoringProgress) -> Scores:
        """Evaluates the module, which is in evaluation mode. All workers of the team call it together. `progress` says
        which examples to score, and must be told of every few that are scored: it ends the evaluation at a stop signal."""
        ...

    def export(self, module: nn.Module, folder: Path) -> None:
        """Writes the model so that it can be used without the trainer; see `write_model`."""
        ...


Weights = dict[Path, dict[str, Tensor]]
"""The tensors of files that are still to be written."""
_collected: ContextVar[Weights | None] = ContextVar("collected", default=None)


@contextmanager
def collect_weights() -> Iterator[Weights]:
    """Inside, `write_model` adds the live weights to this dictionary instead of writing them: a checkpoint copies them
    first, and writes them while training continues."""
    weights: Weights = {}
    before = _collected.set(weights)
    try:
        yield weights
    finally:
        _collected.reset(before)


def write_model(folder: Path, module: nn.Module, config: Mapping[str, object]) -> None:
    """Writes the weights of a module as `model.safetensors` and what is needed to rebuild it as `config.json`."""
    from safetensors.torch import save

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    path, weights, collected = folder / "model.safetensors", module.state_dict(), _collected.get()
    if collected is not None:
        collected[path] = weights
        return
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    path.write_bytes(save(contiguous, metadata={"format": "pt"}))


def sum_over_workers(team: Team, values: Tensor) -> list[float]:
    """Returns the sums of a small tensor over all workers. They are added in rank order, so that every worker gets the
    same bits."""
    return torch.tensor(team.gather(values.tolist()), dtype=torch.float64).sum(0).tolist()
