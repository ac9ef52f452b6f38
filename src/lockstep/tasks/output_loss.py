"""Output layer and cross-entropy fused, in blocks of words.

The logits, `[target words, vocabulary]`, would be the largest tensor of a step, and only the loss reads them. Here a block
of words at a time is multiplied with the weights, scored, and turned into its gradient while it is in the cache. The full
tensor is never allocated. The forward pass computes the gradient too, so nothing is computed twice.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from lockstep.models import kernels
from lockstep.models.fused import ROW_UNIT

BLOCK_SCORES = {"cpu": 2**22, "cuda": 2**26}
"""Logits in a block: on CPU about as many as fit into a core's share of the cache, on a GPU enough to occupy it."""


def cross_entropy(x: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Returns the summed cross-entropy of the logits `x @ weight.T` against `target`, with label smoothing.

    x is `[words, width]`, weight `[vocabulary, width]`, target `[words]`. The products follow autocast. The loss and the
    accumulated gradient of the weights are fp32. x may have more rows than there are words, which are ignored.
    """
    with_gradient = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    if with_gradient and kernels.are_used(x):
        return _native_loss(x.to(kernels.find_dtype(x)), weight, target, smoothing)
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    return _blockwise_loss(x, weight, target, smoothing, with_gradient)


class _LossContext(FunctionCtx):
    gradients: tuple[Tensor, Tensor] | None


def _take_gradients(ctx: _LossContext) -> tuple[Tensor, Tensor]:
    if ctx.gradients is None:
        raise RuntimeError("The gradients of the output layer are scaled in place: backward can run only once.")
    gradients, ctx.gradients = ctx.gradients, None
    return gradients


class _BlockwiseLoss(torch.autograd.Function):
    """The products have the format of x. The gradient of the weights stays fp32: outside of this function, autograd would
    round it to the format of the products."""

    @staticmethod
    def forward(
        ctx: _LossContext, x: Tensor, weight: Tensor, target: Tensor, smoothing: float, with_gradient: bool
    ) -> Tensor:
        vocabulary, product_weight = weight.shape[0], weight.to(x.dtype)
        rows = max(16, BLOCK_SCORES["cuda" if x.is_cuda else "cpu"] // vocabulary)
        loss = x.new_zeros((), dtype=torch.float32)
        if with_gradient:
            x_grad, weight_grad = torch.empty_like(x), torch.zeros_like(weight, dtype=torch.float32)
        for start in range(0, len(x), rows):
            part, labels = x[start : start + rows], target[start : start + rows, None]  # [rows, width], [rows, 1]
            scores = torch.log_softmax(part @ product_weight.T, dim=1, dtype=torch.float32)  # [rows, vocabulary]
            loss -= scores.gather(1, labels).sum() * (1.0 - smoothing)
            if smoothing:
                loss -= scores.sum() * (smoothing / vocabulary)
            if with_gradient:
                scores.exp_()
                if smoothing:
                    scores -= smoothing / vocabulary
                scores.scatter_add_(1, labels, scores.new_full(labels.shape, smoothing - 1.0))
                gradient = scores.to(x.dtype)
                x_grad[start : start + rows] = gradient @ product_weight
                if x.dtype == torch.float32:
                    torch.addmm(weight_grad, gradient.T, part, out=weight_grad)
                else:
                    weight_grad += gradient.T @ part
        if with_gradient:
            ctx.gradients = x_grad, weight_grad
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: _LossContext, scale: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        x_grad, weight_grad = _take_gradients(ctx)
        return x_grad.mul_(scale), weight_grad.mul_(scale), None, None, None


NATIVE_BLOCK_BYTES = 2**25
"""Of logits in a block of the compiled kernel, which passes over a row while it is in the cache."""


class _NativeLoss(torch.autograd.Function):
    """Like `_BlockwiseLoss`, with the compiled kernel. Its backward pass returns fp32 gradients of fp32 weights."""

    @staticmethod
    def forward(ctx: _LossContext, x: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> Tensor:
        words, vocabulary, dtype = len(target), weight.shape[0], x.dtype
        rows = _choose_block(len(x), NATIVE_BLOCK_BYTES // (vocabulary * x.element_size()))
        product_weight, losses = weight.to(dtype), torch.empty(words, dtype=torch.float64)
        x_grad, weight_grad = torch.empty_like(x), None
        for start in range(0, len(x), rows):
            part = x[start : start + rows]
            logits = kernels.multiply(part, product_weight.T)  # [rows, vocabulary]
            scored = max(0, min(words - start, len(part)))
            tensors = (kernels.address(tensor) for tensor in (logits, target[start:], losses[start:]))
            arguments = kernels.CrossEntropy(scored, vocabulary, *tensors, smoothing)
            kernels.run("lockstep_cross_entropy", arguments, dtype)
            logits[scored:] = 0  # rows that belong to no word
            x_grad[start : start + rows] = kernels.multiply(logits, product_weight)
            part_grad = kernels.multiply(logits.T, part)
            weight_grad = part_grad.float() if weight_grad is None else weight_grad.add_(part_grad)
        assert weight_grad is not None
        ctx.gradients = x_grad, weight_grad
        return losses.sum().float()

    @staticmethod
    @once_differentiable
    def backward(ctx: _LossContext, scale: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x_grad, weight_grad = _take_gradients(ctx)
        return x_grad.mul_(scale), weight_grad.mul_(scale), None, None


def _choose_block(rows: int, most: int) -> int:
    """Returns the rows of a block: a multiple of ROW_UNIT, about `most`, so that all blocks have about the same size."""
    blocks = max(1, round(rows / max(most, ROW_UNIT)))
    return -(-rows // blocks // ROW_UNIT) * ROW_UNIT


_native_loss: Callable[[Tensor, Tensor, Tensor, float], Tensor] = _NativeLoss.apply
_blockwise_loss: Callable[[Tensor, Tensor, Tensor, float, bool], Tensor] = _BlockwiseLoss.apply
