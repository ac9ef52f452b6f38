"""The compiled CPU kernels of kernels.c and decode_kernels.c: whether they are there, whether they are selected, and their
arguments.

A run selects those of training once, records that, and keeps it. `fused` calls them, and `decoding` calls those of beam
search wherever they are there. Everything that they compute, torch's operators compute as well.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_float, c_long, c_uint64, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from lockstep.errors import LockstepError

VERSION = 4
"""As in kernels.c. A library of another version is not used."""
CHUNKS = 16
"""As in kernels.c."""
NAME, WITHOUT = "native", "torch"
"""How a run records whether it uses these kernels."""
_selected = False


LIBRARIES = {
    "_kernels_v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "_kernels_v3": {"avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"},
    "_kernels": set[str](),
}
"""From the best to the one that every CPU can run: the instructions that each needs."""


@cache
def read_cpu_flags() -> set[str]:
    """Returns the words of /proc/cpuinfo, among them the instructions that this CPU has."""
    try:
        return set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return set()


@cache
def load() -> ctypes.CDLL | None:
    """Returns the best library for this CPU, or None where there is none. torch is loaded before it, with its OpenMP."""
    for name, needed in LIBRARIES.items():
        for path in Path(__file__).parent.glob(f"{name}.*.so") if needed <= read_cpu_flags() else ():
            try:
                library = ctypes.CDLL(str(path))
                if library.lockstep_kernels_version() == VERSION:
                    return library
            except (AttributeError, OSError):
                continue
    return None


def are_available() -> bool:
    return load() is not None


def select(name: str) -> None:
    """Selects the kernels that training uses from now on: `native` or `torch`."""
    global _selected
    if name == NAME and not are_available():
        raise LockstepError("The native kernels are not installed here.", "Install Lockstep again, with a C compiler.")
    _selected = name == NAME


@contextmanager
def selected(name: str) -> Iterator[None]:
    """Selects kernels for a while."""
    before = NAME if _selected else WITHOUT
    select(name)
    try:
        yield
    finally:
        select(before)


def are_used(x: Tensor) -> bool:
    """Whether the training step computes tensors like this one with the native kernels."""
    return _selected and x.device.type == "cpu" and torch.is_grad_enabled() and find_dtype(x) in HALF


HALF = {torch.float32: 0, torch.bfloat16: 1}
"""The formats of activations that the kernels know."""


def find_dtype(x: Tensor) -> torch.dtype:
    """Returns the format in which autocast multiplies tensors like this one."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


class Embed(ctypes.Structure):
    _fields_ = (
        *((name, c_long) for name in ("rows", "width")),
        *((name, c_void_p) for name in ("ids", "places", "table", "positions", "x")),
        *(("factor", c_float), ("dropped", c_long), ("seed", c_uint64)),
        *((name, c_void_p) for name in ("x_grad", "table_grad")),
    )


class AddNorm(ctypes.Structure):
    _fields_ = (
        *((name, c_long) for name in ("rows", "width")),
        *((name, c_void_p) for name in ("x", "y", "sum", "h", "full", "mean", "scale", "weight", "shift")),
        *(("epsilon", c_float), ("dropped", c_long), ("seed", c_uint64)),
    )


class AddNormBackward(ctypes.Structure):
    _fields_ = (
        *((name, c_long) for name in ("rows", "width")),
        *((name, c_void_p) for name in ("h_grad", "full_grad", "sum_grad", "sum", "mean", "scale", "weight")),
        *((name, c_void_p) for name in ("x_grad", "y_grad", "column_sums")),
        *(("dropped", c_long), ("seed", c_uint64)),
    )


class Relu(ctypes.Structure):
    _fields_ = (
        *((name, c_long) for name in ("rows", "width")),
        *((name, c_void_p) for name in ("y", "bias")),
        *(("dropped", c_long), ("seed", c_uint64)),
    )


class ReluBackward(ctypes.Structure):
    _fields_ = (
        *((name, c_long) for name in ("rows", "width")),
        *((name, c_void_p) for name in ("grad", "result", "column_sums")),
        ("dropped", c_long),
    )


class Attend(ctypes.Structure):
    _fields_ = (
        *((name, c_long) for name in ("sentences", "heads", "size")),
        *((name, c_void_p) for name in ("queries", "keys", "places", "q", "k", "v")),
        *((name, c_long) for name in ("q_stride", "k_stride", "v_stride")),
        *((name, c_void_p) for name in ("out", "weights")),
        *(("causal", c_long), ("dropped", c_long), ("seed", c_uint64)),
        *((name, c_void_p) for name in ("out_grad", "q_grad", "k_grad", "v_grad", "scratch")),
        ("scratch_size", c_long),
    )


class CrossEntropy(ctypes.Structure):
    _fields_ = (
        *((name, c_long) for name in ("rows", "vocabulary")),
        *((name, c_void_p) for name in ("logits", "labels", "losses")),
        ("smoothing", c_float),
    )


class DecodeAttention(ctypes.Structure):
    _fields_ = (
        *((name, c_long) for name in ("hypotheses", "heads", "size")),
        *(("q", c_void_p), ("q_stride", c_long), ("out", c_void_p), ("length", c_long)),
        *(("words", c_void_p), ("origins", c_void_p), ("word_stride", c_long)),
        *(("source", c_void_p), ("begins", c_void_p), ("lengths", c_void_p), ("beam", c_long)),
    )


class BestWords(ctypes.Structure):
    _fields_ = (
        *((name, c_long) for name in ("sentences", "beam", "vocabulary", "count")),
        *(("logits", c_void_p), ("stride", c_long)),
        *((name, c_void_p) for name in ("scores", "best_scores", "best")),
    )


def run(name: str, arguments: ctypes.Structure, dtype: torch.dtype) -> None:
    """Calls a kernel with the threads that torch uses."""
    library = load()
    assert library is not None
    getattr(library, name)(ctypes.byref(arguments), HALF[dtype], torch.get_num_threads())


def address(tensor: Tensor | None, offset: int = 0) -> int | None:
    """Returns where the data of a tensor begins, or the value at `offset`."""
    return None if tensor is None else tensor.data_ptr() + offset * tensor.element_size()


def _has_fast_onednn() -> bool:
    """Whether oneDNN multiplies fp32 exactly with 512-bit vectors. With AMX the same switch would round to bf16."""
    flags = read_cpu_flags()
    return "avx512bw" in flags and "amx_bf16" not in flags


@contextmanager
def fast_products() -> Iterator[None]:
    """The context in which fp32 products are fast. For fp32 torch calls MKL, which is slow on CPUs of other makers; oneDNN
    is not, and `medium` selects it. Without AMX its products are exact fp32."""
    if not _has_fast_onednn():
        yield
        return
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Returns `a @ b`, with the fastest exact product."""
    if a.dtype != torch.float32:
        return a @ b
    with fast_products():
        return a @ b
