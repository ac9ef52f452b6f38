"""What the optimizers have in common: plain named tensors, made at once so that the state has one shape at every moment.

torch's optimizer classes import the whole compiler with their first step, which costs every worker two seconds of start-up;
their functional forms do the same arithmetic without it, and leave the state in our hands, where checkpoints need it.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn


def held(tensor: Tensor) -> Tensor:
    """What this worker holds of a tensor: all of it, or its part of one that is sharded (a DTensor)."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Optimizer(ABC):
    """An update rule sees one value at a time: any stretch of the parameters may be updated by itself."""

    MOMENTS: ClassVar[tuple[str, ...]] = ()
    """What is kept for every parameter, by name."""

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self.moments = {
            moment: {name: torch.zeros_like(p, requires_grad=False) for name, p in parameters.items()}
            for moment in self.MOMENTS
        }
        self.steps = [torch.zeros((), device=p.device) for p in parameters.values()]  # updates so far

    @torch.no_grad()
    def gradients(self) -> list[Tensor]:
        missing = [name for name, p in self.parameters.items() if p.grad is None]
        assert not missing, f"no gradient for {missing}"
        return [held(p.grad) for p in self.parameters.values() if p.grad is not None]

    @abstractmethod
    def step(self, gradients: list[Tensor], learning_rate: float) -> None: ...

    def forget_gradients(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def _held(self) -> tuple[list[Tensor], list[list[Tensor]]]:
        """Parameters, and the list of each moment, as far as this worker holds them."""
        moments = [[held(tensor) for tensor in self.moments[name].values()] for name in self.MOMENTS]
        return [held(parameter) for parameter in self.parameters.values()], moments
