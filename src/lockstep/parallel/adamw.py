"""AdamW as plain named tensors, updated by torch's fused kernel.

torch's optimizer class imports the whole compiler with its first step, which costs every worker two seconds of start-up;
its functional form does the same arithmetic without it, and leaves the state in our hands, where checkpoints need it.
"""

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

MOMENTS = ("exp_avg", "exp_avg_sq")


def held(tensor: Tensor) -> Tensor:
    """What this worker holds of a tensor: all of it, or its part of one that is sharded (a DTensor)."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class AdamW:
    """Made now and not with the first step, so that the state has one shape at every moment."""

    def __init__(
        self, parameters: dict[str, nn.Parameter], betas: tuple[float, float], epsilon: float, weight_decay: float
    ) -> None:
        self.parameters = parameters
        self.betas, self.epsilon, self.weight_decay = betas, epsilon, weight_decay
        self.moments = {
            moment: {name: torch.zeros_like(p, requires_grad=False) for name, p in parameters.items()}
            for moment in MOMENTS
        }
        self.steps = [torch.zeros((), device=p.device) for p in parameters.values()]  # updates so far

    @torch.no_grad()
    def gradients(self) -> list[Tensor]:
        missing = [name for name, p in self.parameters.items() if p.grad is None]
        assert not missing, f"no gradient for {missing}"
        return [held(p.grad) for p in self.parameters.values() if p.grad is not None]

    @torch.no_grad()
    def step(self, gradients: list[Tensor], learning_rate: float) -> None:
        first, second = ([held(tensor) for tensor in self.moments[moment].values()] for moment in MOMENTS)
        adamw(
            [held(parameter) for parameter in self.parameters.values()],
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

    def forget_gradients(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None
