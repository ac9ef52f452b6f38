"""What this worker could do at best: the rate of a large matrix product, measured on the spot.

The share of it that training reaches (MFU) compares runs on different machines, and says how much is left to gain.
"""

import time

import torch
from torch import Tensor

LARGEST = 8192
"""Rows of the largest product tried."""
TRIES = 3


def product_peak(device: torch.device, dtype: torch.dtype, seconds: float) -> float:
    """FLOP/s of the best of some products. They grow until one takes a good part of the seconds that all may take; of
    each size several are made, because another program may hold up any of them."""
    begin, size, best = time.perf_counter(), 256, 0.0
    while True:
        a, b = _operands(size, device, dtype)
        shortest = min(_timed(a, b) for _ in range(TRIES))
        best = max(best, 2 * size**3 / shortest)
        if 8 * shortest >= seconds or size == LARGEST:
            break
        size *= 2
    while time.perf_counter() - begin < seconds:
        best = max(best, 2 * size**3 / _timed(a, b))
    return best


def _operands(size: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.rand(size, size, device=device).to(dtype), torch.rand(size, size, device=device).to(dtype)


def _timed(a: Tensor, b: Tensor) -> float:
    if a.is_cuda:
        torch.cuda.synchronize(a.device)
    begin = time.perf_counter()
    torch.mm(a, b)
    if a.is_cuda:
        torch.cuda.synchronize(a.device)
    return time.perf_counter() - begin
