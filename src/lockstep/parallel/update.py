"""One worker's update: unscale, norm, finite check, clip, optimizer. All strategies whose workers update share it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from lockstep import faults
from lockstep.parallel.optimizers import MakeOptimizer


@dataclass
class State:
    """Everything that a strategy saves. `tensors` and `scalars` mean the same under every strategy. `private` is for the
    strategy that saved it; a private name with a worker's number belongs to that worker."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    private: dict[str, Tensor] = field(default_factory=dict)


class LossScale:
    """Keeps fp16 gradients in range: doubles after 2,000 good steps, halves after one that overflowed."""

    GROW_AFTER = 2000

    def __init__(self, start: float) -> None:
        self.value, self.good_steps = start, 0

    def adapt(self, finite: bool) -> None:
        if not finite:
            self.value, self.good_steps = max(1.0, self.value / 2), 0
        elif self.good_steps + 1 >= self.GROW_AFTER:
            self.value, self.good_steps = self.value * 2, 0
        else:
            self.good_steps += 1


@dataclass(frozen=True)
class Judgement:
    """What to do with a gradient."""

    finite: bool
    norm: float
    factor: float  # multiplies the gradient: removes the loss scale and clips the norm


class Guard:
    """Judges gradients by their norm. Workers that see the same norm come to the same decision."""

    def __init__(self, clip: float | None, loss_scale: float | None) -> None:
        self.clip = clip
        self.scale = LossScale(loss_scale) if loss_scale is not None else None

    def scale_loss(self, loss: Tensor) -> Tensor:
        return loss if self.scale is None else loss * self.scale.value

    def judge(self, scaled_norm: float) -> Judgement:
        scale = self.scale.value if self.scale is not None else 1.0
        norm = scaled_norm / scale
        finite = norm < float("inf")  # false for NaN as well
        if self.scale is not None:
            self.scale.adapt(finite)
        factor = 1.0 / scale
        if self.clip is not None and norm > self.clip:
            factor *= self.clip / norm
        return Judgement(finite, norm, factor)

    def scalars(self) -> dict[str, float]:
        if self.scale is None:
            return {}
        return {"loss_scale.value": self.scale.value, "loss_scale.good_steps": float(self.scale.good_steps)}

    def load(self, scalars: dict[str, float]) -> list[str]:
        if self.scale is None:
            return []
        if "loss_scale.value" not in scalars:
            return ["the fp16 loss scale starts from its initial value"]
        self.scale.value = scalars["loss_scale.value"]
        self.scale.good_steps = int(scalars["loss_scale.good_steps"])
        return []


class Updater:
    """Model and optimizer of one process. Where a process stores shards only, `norm` computes the norm of the full
    gradient from them."""

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: MakeOptimizer,
        clip: float | None,
        loss_scale: float | None,
        norm: Callable[[list[Tensor]], Tensor] = get_total_norm,
    ) -> None:
        self.module, self.norm = module, norm
        self.optimizer = make_optimizer({name: p for name, p in module.named_parameters() if p.requires_grad})
        self.guard = Guard(clip, loss_scale)

    def backward(self, loss: Tensor) -> None:
        self.guard.scale_loss(loss).backward()

    def apply(self, learning_rate: float) -> tuple[bool, float]:
        """Returns (applied, gradient norm). All workers know the same norm here, so they make the same decision."""
        return self.apply_judged(float(self.measure_norm()), learning_rate)

    def measure_norm(self) -> Tensor:
        """Returns the norm of the gradient as it is, with the loss scale."""
        return self.norm(self.optimizer.gradients())

    def apply_judged(self, scaled_norm: float, learning_rate: float) -> tuple[bool, float]:
        """Does what `apply` does, with a norm that the host knows."""
        gradients = self.optimizer.gradients()
        judgement = self.guard.judge(scaled_norm)
        if judgement.finite:
            if judgement.factor != 1.0:
                torch._foreach_mul_(gradients, judgement.factor)
            faults.at("update")
            self.optimizer.step(gradients, learning_rate)
        self.optimizer.drop_gradients()
        return judgement.finite, judgement.norm

    def apply_on_device(self, learning_rate: float) -> Tensor:
        """Does what `apply` does without waiting for the device, whose kernels judge the norm; returns the norm with the
        loss scale. Once the host has read it, `guard.judge` says whether the update was applied, and adapts the scale."""
        gradients = self.optimizer.gradients()
        scaled_norm = self.norm(gradients).double()
        scale, divisor = self.guard.scale, None
        if scale is not None or self.guard.clip is not None:
            divisor = scaled_norm.new_full((), 1.0 if scale is None else scale.value)
            if self.guard.clip is not None:
                divisor = torch.maximum(divisor, scaled_norm / self.guard.clip)
            divisor = divisor.float()
        faults.at("update")
        self.optimizer.step(gradients, learning_rate, divisor, (~scaled_norm.isfinite()).float())
        self.optimizer.drop_gradients()
        return scaled_norm

    def state(self) -> State:
        tensors = dict(self.module.state_dict())
        for moment, by_name in self.optimizer.moments.items():
            tensors |= {f"optimizer.{moment}.{name}": tensor for name, tensor in by_name.items()}
        return State(tensors, {"optimizer.step": float(self.optimizer.steps[0])} | self.guard.scalars())

    def load(self, scalars: dict[str, float]) -> list[str]:
        for step in self.optimizer.steps:
            step.fill_(scalars["optimizer.step"])
        return self.guard.load(scalars)
