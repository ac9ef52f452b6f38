"""Dropout whose masks are cheap on CPU, to make and to keep.

torch draws one random number per value on CPU, which takes longer than the layers around it. Here one 64-bit draw decides
eight values, so the share is a multiple of 1/256; the scale matches the rounded share exactly. Masks are kept as bytes.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def dropout(x: Tensor, share: float) -> Tensor:
    """Sets about `share` of the values to zero and scales up the rest."""
    zeros = _zeros(share)
    if zeros == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, share)
    dropped: Tensor = _Dropout.apply(x, zeros)  # type: ignore[no-untyped-call]
    return dropped


def relu_dropout(x: Tensor, share: float) -> Tensor:
    """`dropout(relu(x))`. On CPU x itself becomes the result, and no mask is kept: what is zero gets no gradient,
    whether it was negative or dropped."""
    zeros = _zeros(share)
    if zeros == 0:
        return F.relu(x)
    if x.device.type != "cpu":
        return F.dropout(F.relu(x), share)
    dropped: Tensor = _ReluDropout.apply(x, zeros)  # type: ignore[no-untyped-call]
    return dropped


def _zeros(share: float) -> int:
    """Of 256 values, how many are dropped."""
    return min(255, round(share * 256))


def _keep(x: Tensor, zeros: int) -> Tensor:
    """A byte for every value of x: 1 keeps it, 0 drops it."""
    draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    # Bytes below `zeros` become 0 and the others 1. A comparison says the same, but torch's bool kernels are far slower.
    return draws.view(torch.uint8)[: x.numel()].view(x.shape).clamp_(zeros - 1, zeros).sub_(zeros - 1)


def _scaled(keep: Tensor, dtype: torch.dtype, zeros: int) -> Tensor:
    return keep.to(dtype).mul_(256.0 / (256 - zeros))


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, zeros: int) -> Tensor:
        keep = _keep(x, zeros)
        ctx.save_for_backward(keep)
        ctx.zeros = zeros
        return _scaled(keep, x.dtype, zeros).mul_(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return _scaled(keep, grad.dtype, ctx.zeros).mul_(grad), None


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, zeros: int) -> Tensor:
        ctx.mark_dirty(x)
        x.clamp_min_(0.0).mul_(_scaled(_keep(x, zeros), x.dtype, zeros))
        ctx.save_for_backward(x)
        ctx.zeros = zeros
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (result,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, result, 0.0).mul_(256.0 / (256 - ctx.zeros)), None


class Dropout(nn.Module):
    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.share) if self.training else x
