"""Batch norm whose statistics are those of the whole global batch, on any device and with any shares.

torch's own SyncBatchNorm needs a GPU. Here a worker's mean and variance come from torch's kernels, and only sums of one
value for each channel travel: weighted by how many values each worker has, so that shares may be unequal or empty.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SumOverWorkers = Callable[[Tensor], None]
"""Adds a tensor up over all workers whose gradients make one update, in place."""


class BatchNorm(nn.Module):
    """Like `nn.BatchNorm2d`, which it is as long as nobody sets `sum_over_workers`. Takes `[images, channels, ...]`."""

    def __init__(self, channels: int, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.epsilon = momentum, epsilon
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.sum_over_workers: SumOverWorkers | None = None  # set by a strategy whose workers move together
        self.sum_bytes = (24 * channels, 16 * channels)  # forward and backward, for whoever plans

    def forward(self, values: Tensor) -> Tensor:
        if not self.training:
            return F.batch_norm(
                values, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.epsilon
            )
        count = values.numel() // values.shape[1]
        if self.sum_over_workers is None and count > 1:
            normalised, mean, inverse = torch.native_batch_norm(
                values, self.weight, self.bias, None, None, True, 0.0, self.epsilon
            )
            self._remember(mean, inverse.pow(-2) - self.epsilon, mean.new_full((), float(count)))
            return normalised
        sums = self._sums(values, count)
        whole = sums[0, 0].clamp(min=1.0)
        mean = sums[1] / whole
        variance = (sums[2] / whole - mean.square()).clamp(min=0.0).to(self.weight.dtype)
        mean = mean.to(self.weight.dtype)
        self._remember(mean, variance, sums[0, 0])
        given = (mean, variance, whole, self.epsilon, self.sum_over_workers)
        return _normalise(values, self.weight, self.bias, *given)

    @torch.no_grad()
    def _sums(self, values: Tensor, count: int) -> Tensor:
        """`[3, channels]`: how many values, their sum, the sum of their squares. In double precision, so that the variance,
        a small difference of large numbers, keeps its digits."""
        sums = values.new_zeros(3, values.shape[1], dtype=torch.float64)
        if count:
            # Averages of their own make torch's kernel answer in their number format, also when the values have less.
            unused = self.running_mean.clone(), self.running_var.clone()
            mean, variance = (one.double() for one in torch.batch_norm_update_stats(values, *unused, 0.0))
            sums[0], sums[1], sums[2] = count, mean * count, (variance + mean.square()) * count
        if self.sum_over_workers is not None:
            self.sum_over_workers(sums)
        return sums

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Running averages for evaluation. A batch without images, or with values that are not finite, changes nothing."""
        unbiased = variance * (count / (count - 1.0).clamp(min=1.0)).to(variance.dtype)
        known = (count > 0) & mean.isfinite().all() & variance.isfinite().all()
        momentum = torch.where(known, self.momentum, 0.0).to(mean.dtype)
        self.running_mean.lerp_(mean.nan_to_num(), momentum)
        self.running_var.lerp_(unbiased.nan_to_num(), momentum)


class _Normalise(torch.autograd.Function):
    """The forward pass takes mean and variance as given; the backward pass knows that every value had a part in them."""

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        count: Tensor,
        epsilon: float,
        sum_over_workers: SumOverWorkers | None,
    ) -> Tensor:
        ctx.save_for_backward(values, weight, mean, variance, count)
        ctx.epsilon, ctx.sum_over_workers = epsilon, sum_over_workers
        if not values.numel():  # torch's kernels divide by the number of images
            return values.clone()
        return F.batch_norm(values, mean, variance, weight, bias, False, 0.0, epsilon)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        values, weight, mean, variance, count = ctx.saved_tensors
        direct, of_weight, of_bias = gradients[0].clone(), torch.zeros_like(weight), torch.zeros_like(weight)
        if values.numel():
            unused = mean.new_empty(0)  # as torch itself passes it on; its kernels for GPUs insist on a tensor
            direct, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
                gradients[0], values, weight, mean, variance, unused, unused, False, ctx.epsilon, [True, True, True]
            )
        sums = torch.stack([of_bias, of_weight]).double()
        if ctx.sum_over_workers is not None:
            ctx.sum_over_workers(sums)
        if values.numel():
            of_mean, of_spread = (sums / count).to(weight.dtype)
            scale = -weight * (variance + ctx.epsilon).rsqrt()
            # Through mean and variance: a share of every normalised value and a constant, rounded once.
            given = mean, variance, scale * of_spread, scale * of_mean
            direct += F.batch_norm(values, *given, False, 0.0, ctx.epsilon)
        return direct, of_weight, of_bias, None, None, None, None, None


_normalise: Callable[..., Tensor] = _Normalise.apply
