"""Dropout with masks that are cheap to draw and to store on CPU.

On CPU torch draws one random number per value, which takes longer than the layers around it. Here one 64-bit draw decides
eight values, so the probability is rounded to a multiple of 1/256. The scale matches the rounded probability exactly.
Masks are stored as bytes. On GPUs this is `F.dropout`.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable


def dropout(x: Tensor, p: float) -> Tensor:
    """Sets values to zero with probability `p` and scales up the rest."""
    dropped = count_dropped(p)
    if dropped == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    return _dropout(x, dropped)


def relu_dropout(x: Tensor, p: float) -> Tensor:
    """Returns `dropout(relu(x))`. On CPU it works in place and stores no mask: a value that is zero in the result gets no
    gradient, whether it was negative or dropped."""
    dropped = count_dropped(p)
    if dropped == 0:
        return F.relu(x)
    if x.device.type != "cpu":
        return F.dropout(F.relu(x), p)
    return _relu_dropout(x, dropped)


def count_dropped(p: float) -> int:
    """Returns how many of 256 values are dropped on average: the probability is rounded to that."""
    return min(255, round(p * 256))


def _draw_mask(x: Tensor, dropped: int) -> Tensor:
    """Returns a byte for every value of x: 1 keeps the value, 0 drops it."""
    draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    # Bytes below `dropped` become 0 and the others 1. A comparison gives the same, but torch's bool kernels are slower.
    return draws.view(torch.uint8)[: x.numel()].view(x.shape).clamp_(dropped - 1, dropped).sub_(dropped - 1)


def _scale_mask(mask: Tensor, dtype: torch.dtype, dropped: int) -> Tensor:
    """Returns the factors of a mask: 0, or 1 / (1 - p)."""
    return mask.to(dtype).mul_(256.0 / (256 - dropped))


class _DropoutContext(FunctionCtx):
    saved_tensors: tuple[Tensor, ...]
    dropped: int


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _DropoutContext, x: Tensor, dropped: int) -> Tensor:
        mask = _draw_mask(x, dropped)
        ctx.save_for_backward(mask)
        ctx.dropped = dropped
        return _scale_mask(mask, x.dtype, dropped).mul_(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: _DropoutContext, grad: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return _scale_mask(mask, grad.dtype, ctx.dropped).mul_(grad), None


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _DropoutContext, x: Tensor, dropped: int) -> Tensor:
        ctx.mark_dirty(x)
        x.clamp_min_(0.0).mul_(_scale_mask(_draw_mask(x, dropped), x.dtype, dropped))
        ctx.save_for_backward(x)
        ctx.dropped = dropped
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: _DropoutContext, grad: Tensor) -> tuple[Tensor, None]:
        (result,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, result, 0.0).mul_(256.0 / (256 - ctx.dropped)), None


_dropout: Callable[[Tensor, int], Tensor] = _Dropout.apply
_relu_dropout: Callable[[Tensor, int], Tensor] = _ReluDropout.apply


class Dropout(nn.Module):
    """Like `nn.Dropout`, with the masks of this module."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x
