"""Dropout whose masks are cheap on CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def dropout(x: Tensor, share: float) -> Tensor:
    """Sets about `share` of the values to zero and scales up the rest.

    torch draws one random number per value on CPU, which takes longer than the layers around it. One 64-bit draw here
    decides eight values, so the share is a multiple of 1/256; the scale matches the rounded share exactly.
    """
    zeros = min(255, round(share * 256))
    if zeros == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, share)
    draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    # Bytes below `zeros` become 0 and the others 1. A comparison says the same, but torch's bool kernels are far slower.
    keep = draws.view(torch.uint8)[: x.numel()].view(x.shape).clamp_(zeros - 1, zeros).sub_(zeros - 1)
    return x * keep.to(x.dtype).mul_(256.0 / (256 - zeros))


class Dropout(nn.Module):
    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.share) if self.training else x
