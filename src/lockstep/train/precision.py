"""The number format of matrix products."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.dtypes import DTYPES

FIRST_LOSS_SCALE = 2.0**16
FIRST_SENDING_SCALE = 2.0**10
"""The first loss scale where gradients are computed in another format and only sent in fp16."""


def has_native_bf16(device: torch.device) -> bool:
    """Whether the hardware multiplies bf16. Emulated bf16 is slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return any(flag in flags for flag in ("avx512_bf16", "amx_bf16", "bf16"))


def choose_loss_scale(precision: str, gradients: str) -> float | None:
    """Returns the first loss scale; None where no format has the short range of fp16. Unscaled gradients per word would be
    zero in fp16, also if they are only sent in it."""
    if precision == "fp16":
        return FIRST_LOSS_SCALE
    return FIRST_SENDING_SCALE if gradients == "fp16" else None


def choose_fp32_products(device: torch.device, tf32: bool) -> None:
    """Computes all fp32 products of a GPU in the same format. torch's defaults differ: convolutions use TF32, products do
    not."""
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32


def uses_tf32(precision: str, device: torch.device) -> bool:
    """Whether fp32 products are computed in TF32: the measured peak depends on it."""
    return precision == "fp32" and device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32


def autocast(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """Returns a function that makes the context of a forward pass."""
    return lambda: torch.autocast(device.type, dtype=DTYPES[precision], enabled=precision != "fp32")


def is_emulated(precision: str, device: torch.device) -> bool:
    """Whether this CPU has no products of this format."""
    return precision == "bf16" and device.type == "cpu" and not has_native_bf16(device)


def emulate_products(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """The context of forward and backward passes. Where a CPU has no bf16 products it emulates them exactly."""
    if not is_emulated(precision, device):
        return nullcontext()
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map_only

    ops = torch.ops.aten
    replaced = (ops.mm, ops.addmm, ops.bmm, ops.convolution, ops.convolution_backward)

    class Emulation(TorchDispatchMode):
        """Computes bf16 products in fp32 and rounds them. torch's own emulation gives the same numbers and is a hundred
        times slower."""

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function.overloadpacket in replaced and args[1].dtype is torch.bfloat16:
                result = function(*tree_map_only(Tensor, Tensor.float, args), **(kwargs or {}))
                return tree_map_only(Tensor, Tensor.bfloat16, result)
            return function(*args, **(kwargs or {}))

    return Emulation()  # type: ignore[no-untyped-call]
