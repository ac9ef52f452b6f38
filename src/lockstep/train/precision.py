"""Which number format the matrix products use."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

FIRST_LOSS_SCALE = 2.0**16


def native_bf16(device: torch.device) -> bool:
    """Does the hardware multiply bf16 itself? Emulated bf16 is slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return any(flag in flags for flag in ("avx512_bf16", "amx_bf16", "bf16"))


def resolve(wanted: str, device: torch.device) -> str:
    if wanted != "auto":
        return wanted
    return "bf16" if native_bf16(device) else "fp32"


def autocast(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """Makes the context in which forward passes run."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    return lambda: torch.autocast(device.type, dtype=dtype, enabled=precision != "fp32")
