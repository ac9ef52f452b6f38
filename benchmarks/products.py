"""The matrix products of a training step: which there are, and how long they take alone.

    python benchmarks/products.py CONFIG [--precision bf16] [--threads 2]

The shapes are those of the linear layers in a real batch, forward and backward. Attention is left out: its products are
small, and the compiled kernels compute them together with the softmax.
"""

import argparse
import os
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.config import load
from lockstep.dtypes import DTYPES
from lockstep.models import kernels
from lockstep.tasks.make_task import make_task
from lockstep.watch.flops import FlopCount

if TYPE_CHECKING:
    from speed import Facts

Shapes = tuple[tuple[int, int], tuple[int, int]]


class ProductShapes(TorchDispatchMode):
    """Collects the shapes of the products inside its context."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shapes: list[Shapes] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = str(func.overloadpacket)
        if name in ("aten.mm", "aten.addmm"):
            left, right = [value for value in args if isinstance(value, Tensor)][-2:]
            self.shapes.append((tuple(left.shape), tuple(right.shape)))  # type: ignore[arg-type]
        return func(*args, **(kwargs or {}))


def count_products(config: Path) -> "Facts":
    """Returns the parameters, FLOPs per target word and products of one step of a model."""
    task = make_task(load(config, []))
    module, share = task.module(), task.order.share(next(task.batches(0, 0)), 0, 1)
    (batch,) = task.micro_batches(share, 1)
    counter, products = FlopCount(), ProductShapes()
    kernels.select(kernels.NAME if kernels.are_available() else kernels.WITHOUT)
    with products, counter:
        module(batch).backward()
    return {
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "flops_per_word": counter.total / batch.target_words,
        "shapes": products.shapes,
        "words": batch.target_words,
    }


def time_products(shapes: Sequence[Shapes], precision: str, threads: int) -> float:
    """Returns the seconds of these products."""
    torch.set_num_threads(threads)
    return sum(count * time_product(pair, DTYPES[precision]) for pair, count in Counter(map(tuple, shapes)).items())


def time_product(shapes: Sequence[Sequence[int]], dtype: torch.dtype) -> float:
    """Returns the seconds of one product of these shapes, as the median of several."""
    operands = [torch.randn(*shape).to(dtype) for shape in shapes[-2:]]
    seconds = []
    for _ in range(8):
        begin = time.perf_counter()
        kernels.multiply(*operands) if len(shapes[-1]) == 2 else torch.bmm(*operands)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    facts = count_products(options.config)
    seconds = time_products(facts["shapes"], options.precision, options.threads)
    print(
        f"{len(facts['shapes'])} products take {1e3 * seconds:.1f} ms: {facts['words'] / seconds:,.0f} target words/s"
    )


if __name__ == "__main__":
    main()
