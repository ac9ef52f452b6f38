"""Stochastic gradient descent with momentum, by torch's fused kernel. The weight decay is part of the gradient."""

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from lockstep.parallel.optimizers import Optimizer


class Sgd(Optimizer):
    MOMENTS = ("momentum",)

    def __init__(
        self, parameters: dict[str, nn.Parameter], momentum: float, nesterov: bool, weight_decay: float
    ) -> None:
        super().__init__(parameters)
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay

    @torch.no_grad()
    def step(self, gradients: list[Tensor], learning_rate: float) -> None:
        parameters, (speeds,) = self._held()
        kept: list[Tensor | None] = list(speeds)
        sgd(
            parameters,
            gradients,
            kept,
            fused=True,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            lr=learning_rate,
            dampening=0.0,
            nesterov=self.nesterov,
            maximize=False,
        )
        torch._foreach_add_(self.steps, 1.0)
