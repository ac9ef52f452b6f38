"""Synchronized batch norm: its statistics are those of the global batch, on any device and with unequal shares.

torch's SyncBatchNorm requires a GPU. Here each worker computes its mean and variance with torch's kernels. One all-reduce
of a few sums per channel, weighted by the number of values on each worker, then gives the statistics of the global batch.
A worker's share of the images may be empty.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

SumOverWorkers = Callable[[Tensor], None]
"""All-reduces (sums) a tensor in place over the workers whose gradients make one update."""


class BatchNorm(nn.Module):
    """Batch norm over `[images, channels, ...]`. It computes what `nn.BatchNorm2d` computes until a strategy sets
    `sum_over_workers`; then the workers share their statistics."""

    def __init__(self, channels: int, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.epsilon = momentum, epsilon
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.sum_over_workers: SumOverWorkers | None = None  # set by strategies whose workers step together
        self.sum_bytes = (24 * channels, 16 * channels)  # bytes all-reduced in forward and in backward, for `plan`

    def forward(self, values: Tensor) -> Tensor:
        if not self.training:
            return F.batch_norm(
                values, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.epsilon
            )
        count = values.numel() // values.shape[1]
        if self.sum_over_workers is None and count > 1:
            normalized, mean, inverse = torch.native_batch_norm(
                values, self.weight, self.bias, None, None, True, 0.0, self.epsilon
            )
            self._update_running_averages(mean, inverse.pow(-2) - self.epsilon, mean.new_full((), float(count)))
            return normalized
        sums = self._compute_sums(values, count)  # [3, channels]
        global_count = sums[0, 0].clamp(min=1.0)
        mean = sums[1] / global_count
        variance = (sums[2] / global_count - mean.square()).clamp(min=0.0).to(self.weight.dtype)
        mean = mean.to(self.weight.dtype)
        self._update_running_averages(mean, variance, sums[0, 0])
        return _normalize(
            values, self.weight, self.bias, mean, variance, global_count, self.epsilon, self.sum_over_workers
        )

    @torch.no_grad()
    def _compute_sums(self, values: Tensor, count: int) -> Tensor:
        """Returns `[3, channels]` over all workers: the number of values, their sum and the sum of their squares. The
        variance is a small difference of large numbers, so the sums are in double precision."""
        sums = values.new_zeros(3, values.shape[1], dtype=torch.float64)
        if count:
            # With fp32 running averages torch's kernel returns fp32 statistics also for bf16 values. The copies are unused.
            copies = self.running_mean.clone(), self.running_var.clone()
            mean, variance = (moment.double() for moment in torch.batch_norm_update_stats(values, *copies, 0.0))
            sums[0], sums[1], sums[2] = count, mean * count, (variance + mean.square()) * count
        if self.sum_over_workers is not None:
            self.sum_over_workers(sums)
        return sums

    @torch.no_grad()
    def _update_running_averages(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Updates the averages used in evaluation. A batch that is empty or not finite leaves them unchanged."""
        unbiased = variance * (count / (count - 1.0).clamp(min=1.0)).to(variance.dtype)
        is_usable = (count > 0) & mean.isfinite().all() & variance.isfinite().all()
        momentum = torch.where(is_usable, self.momentum, 0.0).to(mean.dtype)
        self.running_mean.lerp_(mean.nan_to_num(), momentum)
        self.running_var.lerp_(unbiased.nan_to_num(), momentum)


class _NormalizeContext(FunctionCtx):
    saved_tensors: tuple[Tensor, ...]
    epsilon: float
    sum_over_workers: SumOverWorkers | None


class _Normalize(torch.autograd.Function):
    """Normalizes with given statistics. The backward pass also differentiates through mean and variance, which depend on
    every value of every worker."""

    @staticmethod
    def forward(
        ctx: _NormalizeContext,
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
    def backward(ctx: _NormalizeContext, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        values, weight, mean, variance, count = ctx.saved_tensors
        grad_values, grad_weight, grad_bias = gradients[0].clone(), torch.zeros_like(weight), torch.zeros_like(weight)
        if values.numel():
            unused = mean.new_empty(0)  # torch's CUDA kernels require a tensor here
            grad_values, grad_weight, grad_bias = torch.ops.aten.native_batch_norm_backward(
                gradients[0], values, weight, mean, variance, unused, unused, False, ctx.epsilon, [True, True, True]
            )
        sums = torch.stack([grad_bias, grad_weight]).double()  # [2, channels]
        if ctx.sum_over_workers is not None:
            ctx.sum_over_workers(sums)
        if values.numel():
            grad_mean, grad_variance = (sums / count).to(weight.dtype)
            scale = -weight * (variance + ctx.epsilon).rsqrt()
            # The part through mean and variance is linear in the normalized values: one more batch norm, rounded once.
            linear = mean, variance, scale * grad_variance, scale * grad_mean
            grad_values += F.batch_norm(values, *linear, False, 0.0, ctx.epsilon)
        return grad_values, grad_weight, grad_bias, None, None, None, None, None


_normalize: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, float, SumOverWorkers | None], Tensor] = (
    _Normalize.apply
)
