"""Which number format the matrix products use."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.dtypes import DTYPES

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
    return lambda: torch.autocast(device.type, dtype=DTYPES[precision], enabled=precision != "fp32")


def emulated(precision: str, device: torch.device) -> bool:
    """Is the format one that this CPU has no products of?"""
    return precision == "bf16" and device.type == "cpu" and not native_bf16(device)


def products(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Around forward and backward passes: where a CPU has no bf16 products, their exact emulation."""
    if not emulated(precision, device):
        return nullcontext()
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map_only

    ops = torch.ops.aten
    replaced = (ops.mm, ops.addmm, ops.bmm, ops.convolution, ops.convolution_backward)

    class Emulation(TorchDispatchMode):
        """A bf16 product is one of fp32, rounded: so it is computed as one. torch's own way without the hardware gives
        the same numbers and is a hundred times slower."""

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function.overloadpacket in replaced and args[1].dtype is torch.bfloat16:
                result = function(*tree_map_only(Tensor, Tensor.float, args), **(kwargs or {}))
                return tree_map_only(Tensor, Tensor.bfloat16, result)
            return function(*args, **(kwargs or {}))

    return Emulation()  # type: ignore[no-untyped-call]
