"""The output layer and its loss in one, block by block.

A batch has as many scores as target words x vocabulary: by far the largest tensor of a step, and one that only the loss
reads. Here a block of words at a time is multiplied, scored and turned into its gradient while it is still in the cache;
the whole never exists. The gradient is at hand as soon as the loss is, so nothing is computed twice.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK_SCORES = {"cpu": 2**22, "cuda": 2**26}
"""Scores in a block: on CPU about what a core's share of the cache holds, on a GPU enough to fill it."""


def cross_entropy(x: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Summed loss of `softmax(x @ weight.T)` against `target`; `smoothing` of it goes to all words alike.

    x is `[words, width]`, weight `[vocabulary, width]`, target `[words]`. The products follow autocast; the loss and the
    sum of the weight's gradient are fp32.
    """
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    with_gradient = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    loss: Tensor = _Blocks.apply(x, weight, target, smoothing, with_gradient)  # type: ignore[no-untyped-call]
    return loss


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, target: Tensor, smoothing: float, with_gradient: bool) -> Tensor:
        vocabulary = weight.shape[0]
        rows = max(16, BLOCK_SCORES["cuda" if x.is_cuda else "cpu"] // vocabulary)
        loss = x.new_zeros((), dtype=torch.float32)
        if with_gradient:
            x_grad, weight_grad = torch.empty_like(x), torch.zeros_like(weight, dtype=torch.float32)
        for start in range(0, len(x), rows):
            part, right = x[start : start + rows], target[start : start + rows, None]
            scores = torch.log_softmax(part @ weight.T, dim=1, dtype=torch.float32)
            loss -= scores.gather(1, right).sum() * (1.0 - smoothing)
            if smoothing:
                loss -= scores.sum() * (smoothing / vocabulary)
            if with_gradient:
                scores.exp_()
                if smoothing:
                    scores -= smoothing / vocabulary
                scores.scatter_add_(1, right, scores.new_full(right.shape, smoothing - 1.0))
                gradient = scores.to(x.dtype)
                x_grad[start : start + rows] = gradient @ weight
                if weight.dtype == torch.float32:
                    torch.addmm(weight_grad, gradient.T, part, out=weight_grad)
                else:
                    weight_grad += gradient.T @ part
        if with_gradient:
            ctx.gradients = x_grad, weight_grad
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        x_grad, weight_grad = ctx.gradients
        ctx.gradients = None  # scaled in place: they can be used once
        return x_grad.mul_(scale), weight_grad.mul_(scale), None, None, None
