"""AdamW and SGD on plain named tensors. The state has its final shape from the start, so every checkpoint looks alike.

torch's optimizer classes import the compiler with their first step, which costs every worker two seconds of start-up.
Their functional forms do the same arithmetic without it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd


def local_part(tensor: Tensor) -> Tensor:
    """Returns what this worker stores of a tensor: all of it, or its shard of a DTensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Optimizer(ABC):
    """An update rule that works value by value, so that any slice of the parameters can be updated by itself."""

    MOMENTS: ClassVar[tuple[str, ...]] = ()
    """Names of the tensors that are stored for every parameter."""

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self.moments = {
            moment: {name: torch.zeros_like(p, requires_grad=False) for name, p in parameters.items()}
            for moment in self.MOMENTS
        }
        self.steps = [torch.zeros((), device=p.device) for p in parameters.values()]  # updates so far

    @torch.no_grad()
    def gradients(self) -> list[Tensor]:
        """Returns the gradient of every parameter, as far as this worker stores it."""
        missing = [name for name, p in self.parameters.items() if p.grad is None]
        assert not missing, f"no gradient for {missing}"
        return [local_part(p.grad) for p in self.parameters.values() if p.grad is not None]

    @abstractmethod
    def step(
        self, gradients: list[Tensor], learning_rate: float, divisor: Tensor | None = None, skips: Tensor | None = None
    ) -> None:
        """Updates all parameters in place. `divisor` divides the gradients first; where `skips` is 1 and not 0, nothing is
        changed. Both are for devices, whose kernels read them: the host does not wait for their values."""

    def drop_gradients(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def _local_parts(self) -> tuple[list[Tensor], list[list[Tensor]]]:
        """Returns the parameters and the list of each moment, as far as this worker stores them."""
        moments = [[local_part(tensor) for tensor in self.moments[name].values()] for name in self.MOMENTS]
        return [local_part(parameter) for parameter in self.parameters.values()], moments


MakeOptimizer = Callable[[dict[str, nn.Parameter]], Optimizer]


def describe_optimizer(make_optimizer: MakeOptimizer) -> str:
    """Returns name and settings of an optimizer, by which processes compare theirs."""
    optimizer = make_optimizer({})
    settings = {
        name: value for name, value in vars(optimizer).items() if name not in ("parameters", "moments", "steps")
    }
    return f"{type(optimizer).__name__} {settings}"


class AdamW(Optimizer):
    """AdamW with torch's fused kernel."""

    MOMENTS = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, parameters: dict[str, nn.Parameter], betas: tuple[float, float], epsilon: float, weight_decay: float
    ) -> None:
        super().__init__(parameters)
        self.betas, self.epsilon, self.weight_decay = betas, epsilon, weight_decay

    @torch.no_grad()
    def step(
        self, gradients: list[Tensor], learning_rate: float, divisor: Tensor | None = None, skips: Tensor | None = None
    ) -> None:
        parameters, (first, second) = self._local_parts()
        adamw(
            parameters,
            gradients,
            first,
            second,
            [],
            self.steps,
            fused=True,
            grad_scale=divisor,
            found_inf=skips,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=learning_rate,
            weight_decay=self.weight_decay,
            eps=self.epsilon,
            maximize=False,
        )


class Sgd(Optimizer):
    """SGD with momentum and torch's fused kernel. The weight decay is part of the gradient."""

    MOMENTS = ("momentum",)

    def __init__(
        self, parameters: dict[str, nn.Parameter], momentum: float, nesterov: bool, weight_decay: float
    ) -> None:
        super().__init__(parameters)
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay

    @torch.no_grad()
    def step(
        self, gradients: list[Tensor], learning_rate: float, divisor: Tensor | None = None, skips: Tensor | None = None
    ) -> None:
        parameters, (momenta,) = self._local_parts()
        buffers: list[Tensor | None] = list(momenta)
        sgd(
            parameters,
            gradients,
            buffers,
            fused=True,
            grad_scale=divisor,
            found_inf=skips,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            lr=learning_rate,
            dampening=0.0,
            nesterov=self.nesterov,
            maximize=False,
        )
        torch._foreach_add_(self.steps, 1.0)
        if skips is not None:
            torch._foreach_sub_(self.steps, [skips] * len(self.steps))
