"""One worker's update: unscale, finite check, norm, clip, optimizer. Shared by all strategies that hold a whole model."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from lockstep import faults
from lockstep.parallel.strategy import State

MOMENTS = ("exp_avg", "exp_avg_sq")


class LossScale:
    """Keeps fp16 gradients in range: doubles after 2,000 good steps, halves after one that overflowed."""

    GROW_AFTER = 2000

    def __init__(self, start: float) -> None:
        self.value, self.good_steps = start, 0

    def learn(self, finite: bool) -> None:
        if not finite:
            self.value, self.good_steps = max(1.0, self.value / 2), 0
        elif self.good_steps + 1 >= self.GROW_AFTER:
            self.value, self.good_steps = self.value * 2, 0
        else:
            self.good_steps += 1


class Updater:
    """Model and optimizer of one process. The optimizer is of the Adam family: two moments and a step count."""

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
        clip: float | None,
        loss_scale: float | None,
    ) -> None:
        self.module = module
        self.parameters = dict(module.named_parameters())
        self.optimizer = make_optimizer(self.parameters.values())
        for parameter in self.parameters.values():  # made now, so that the state has one shape at every moment
            moments = {name: torch.zeros_like(parameter) for name in MOMENTS}
            self.optimizer.state[parameter] = {"step": torch.zeros((), device=parameter.device), **moments}
        self.clip = clip
        self.scale = LossScale(loss_scale) if loss_scale is not None else None

    def scaled(self, loss: Tensor) -> Tensor:
        return loss if self.scale is None else loss * self.scale.value

    def apply(self, learning_rate: float) -> tuple[bool, float]:
        """Returns (applied, gradient norm). All workers hold the same gradient here, so they decide alike."""
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        scale = self.scale.value if self.scale is not None else 1.0
        norm = float(get_total_norm(gradients)) / scale
        finite = norm < float("inf")  # false for NaN as well
        if self.scale is not None:
            self.scale.learn(finite)
        if finite:
            factor = 1.0 / scale
            if self.clip is not None and norm > self.clip:
                factor *= self.clip / norm
            if factor != 1.0:
                torch._foreach_mul_(gradients, factor)
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate
            faults.at("update")
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return finite, norm

    def state(self) -> State:
        tensors = dict(self.module.state_dict())
        for name, parameter in self.parameters.items():
            for moment in MOMENTS:
                tensors[f"optimizer.{moment}.{name}"] = self.optimizer.state[parameter][moment]
        first = next(iter(self.parameters.values()))
        scalars = {"optimizer.step": float(self.optimizer.state[first]["step"])}
        if self.scale is not None:
            scalars |= {"loss_scale.value": self.scale.value, "loss_scale.good_steps": float(self.scale.good_steps)}
        return State(tensors, scalars)

    def load(self, scalars: dict[str, float]) -> list[str]:
        for parameter in self.parameters.values():
            self.optimizer.state[parameter]["step"].fill_(scalars["optimizer.step"])
        if self.scale is None:
            return []
        if "loss_scale.value" not in scalars:
            return ["the fp16 loss scale starts anew"]
        self.scale.value = scalars["loss_scale.value"]
        self.scale.good_steps = int(scalars["loss_scale.good_steps"])
        return []
