"""The peak rate of this worker, measured with large matrix products.

The share of the peak that training reaches (MFU) compares runs on different machines.
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor

LARGEST = 8192
"""Rows of the largest matrices."""
TRIES = 3


Multiply = Callable[[Tensor, Tensor], Tensor]


def measure_matmul_peak(
    device: torch.device, dtype: torch.dtype, seconds: float, multiply: Multiply = torch.mm
) -> float:
    """Returns the FLOP/s of the fastest of several products by `multiply`. Their size grows until one takes an eighth of
    the `seconds` that all may take. Each size is tried several times, because another program may delay any of them."""
    begin, size, best = time.perf_counter(), 256, 0.0
    while True:
        a, b = _make_operands(size, device, dtype)
        shortest = min(_time_product(multiply, a, b) for _ in range(TRIES))
        best = max(best, 2 * size**3 / shortest)
        if 8 * shortest >= seconds or size == LARGEST:
            break
        size *= 2
    while time.perf_counter() - begin < seconds:
        best = max(best, 2 * size**3 / _time_product(multiply, a, b))
    return best


def _make_operands(size: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.rand(size, size, device=device).to(dtype), torch.rand(size, size, device=device).to(dtype)


def _time_product(multiply: Multiply, a: Tensor, b: Tensor) -> float:
    if a.is_cuda:
        torch.cuda.synchronize(a.device)
    begin = time.perf_counter()
    multiply(a, b)
    if a.is_cuda:
        torch.cuda.synchronize(a.device)
    return time.perf_counter() - begin
