"""AdamW, by torch's fused kernel."""

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from lockstep.parallel.optimizers import Optimizer


class AdamW(Optimizer):
    MOMENTS = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, parameters: dict[str, nn.Parameter], betas: tuple[float, float], epsilon: float, weight_decay: float
    ) -> None:
        super().__init__(parameters)
        self.betas, self.epsilon, self.weight_decay = betas, epsilon, weight_decay

    @torch.no_grad()
    def step(self, gradients: list[Tensor], learning_rate: float) -> None:
        parameters, (first, second) = self._held()
        adamw(
            parameters,
            gradients,
            first,
            second,
            [],
            self.steps,
            fused=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=learning_rate,
            weight_decay=self.weight_decay,
            eps=self.epsilon,
            maximize=False,
        )
