"""Takes one training step apart: products by shape, attention, norms, dropout, loss, conversions, optimizer, overhead.

    python benchmarks/step_profile.py CONFIG [key=value ...] [--workers 2] [--precision bf16] [--kernels native]

Computes real batches of a prepared corpus with forward, backward and update, without communication. With `--workers 2` two
processes compute half of every batch each, with one thread, at the same time; the table is that of the first. Times are
those of torch's profiler, self time only, for the kernels of Lockstep too. What no operator accounts for is Python and
autograd. Every product is also timed alone with the same shapes: `alone` is the limit that a step without anything else
would reach. The last line compares the sum with the same steps without the profiler.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from products import time_product
from torch.profiler import ProfilerActivity, profile, record_function

from lockstep.config import load
from lockstep.models import kernels
from lockstep.parallel.update import Updater
from lockstep.tasks.make_task import make_task
from lockstep.tasks.task import MicroBatch
from lockstep.train.memory import keep_memory
from lockstep.train.step import choose_optimizer

PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_dot_product_flash_attention_for_cpu"}
GROUPS = {
    "attention": ("lockstep_attend", "softmax", "_scaled_dot_product"),
    "residual, dropout and norm": ("lockstep_add_norm", "layer_norm"),
    "activation and dropout": ("lockstep_relu", "relu", "threshold", "clamp", "random_"),
    "loss without its products": ("lockstep_cross_entropy", "gather", "scatter_add", "nll_loss"),
    "embedding": ("lockstep_embed", "embedding"),
    "padding and packing": ("index_copy", "index_select", "aten::cat", "aten::index"),
    "conversions and copies": ("copy_",),
    "gradient norm and clipping": ("_foreach_norm", "linalg_vector_norm", "_foreach_mul", "stack"),
    "optimizer": ("_fused_adamw", "_fused_sgd", "_foreach_add"),
    "zeros and new memory": ("fill_", "zero_", "empty", "resize"),
    "sums and other elementwise": ("add", "mul", "sub", "sum", "exp", "div"),
}

SPARE_BYTES = 3 * 2**29
"""Of memory that is touched once and freed. Records of the profiler lie between the tensors, so that some of these move to
other memory, whose first use would count as time of an operator."""


def find_group(name: str) -> str:
    """Returns the first group that has a part of the operator's name."""
    matches = (group for group, parts in GROUPS.items() if any(part in name for part in parts))
    return next(matches, "autograd and other operators")


@contextmanager
def kernels_shown() -> Iterator[None]:
    """Shows the kernels of Lockstep to the profiler."""
    run = kernels.run

    def run_recorded(name: str, *arguments: object) -> None:
        with record_function(name):
            run(name, *arguments)  # type: ignore[arg-type]

    kernels.run = run_recorded  # type: ignore[assignment]
    try:
        yield
    finally:
        kernels.run = run


def print_profile(profiled: profile, steps: int, step_seconds: float, dtype: torch.dtype) -> None:
    groups: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    products: dict[tuple[tuple[int, ...], ...], tuple[float, int]] = {}  # seconds and calls
    for event in profiled.key_averages(group_by_input_shape=True):
        seconds, group = event.self_cpu_time_total / 1e6, find_group(event.key)
        if event.key in PRODUCTS:
            group, shapes = "matrix products", tuple(tuple(shape) for shape in event.input_shapes if len(shape) > 1)
            before = products.get(shapes, (0.0, 0))
            products[shapes] = before[0] + seconds, before[1] + event.count
        groups[group] += seconds
        calls[group] += event.count
    print(f"{'part':34} {'ms a step':>10} {'share':>7} {'calls':>7}")
    total = sum(groups.values()) / steps
    for group, seconds in sorted(groups.items(), key=lambda item: -item[1]):
        ms = 1e3 * seconds / steps
        print(f"{group:34} {ms:10.1f} {ms / step_seconds / 1e3:7.1%} {calls[group] / steps:7.0f}")
    print(f"{'Python (not in any operator)':34} {1e3 * (step_seconds - total):10.1f} {1 - total / step_seconds:7.1%}")
    print(f"{'step':34} {1e3 * step_seconds:10.1f}")
    alone = 0.0
    print(f"\n{'the longest products':44} {'ms':>8} {'alone':>8} {'GFLOP/s':>8}")
    ranked = sorted(products.items(), key=lambda item: -item[1][0])
    for number, (shapes, (seconds, count)) in enumerate(ranked):
        single = time_product(shapes, dtype) * count / steps
        alone += single
        if number < 12:
            left, right = shapes[-2:]
            rate = 2 * count * torch.Size(left).numel() * right[-1] / seconds / 1e9
            print(f"{f'{left} x {right}':44} {1e3 * seconds / steps:8.1f} {1e3 * single:8.1f} {rate:8.0f}")
    print(f"all products alone: {1e3 * alone:.1f} ms, {alone / step_seconds:.0%} of the step")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("settings", nargs="*", help="key=value settings to change")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with its share of the cores")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--kernels", choices=["native", "torch"], default="native")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    others = []
    if options.rank == 0:
        command = [sys.executable, __file__, *sys.argv[1:], "--rank"]
        others = [subprocess.Popen([*command, str(rank)], stdout=-3) for rank in range(1, options.workers)]
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // options.workers))
    keep_memory()
    torch.zeros(SPARE_BYTES, dtype=torch.uint8)
    kernels.select(options.kernels)
    step = make_step(options)
    batches = 2 * options.steps + 3
    for number in range(3):
        step(number)
    faults = count_page_faults()
    seconds = [step(number) for number in range(3, 3 + options.steps)]
    faults = count_page_faults() - faults
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled, kernels_shown():
        slowed = [step(number) for number in range(3 + options.steps, batches)]
    for other in others:
        other.wait()
    if options.rank:
        return
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    print_profile(profiled, options.steps, statistics.fmean(slowed), dtype)
    plain = statistics.fmean(seconds)
    print(f"the same without the profiler: {1e3 * plain:.1f} ms ({statistics.fmean(slowed) / plain - 1:+.0%} with it)")
    print(f"page faults: {faults / options.steps:.0f} a step without the profiler")


def count_page_faults() -> int:
    """Returns how often this process has used a page of memory for the first time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def make_step(options: argparse.Namespace) -> Callable[[int], float]:
    """Returns a function that takes a step with the batch of this number, and returns its seconds."""
    config = load(options.config, options.settings)
    task = make_task(config)
    torch.manual_seed(1)
    module = task.module()
    updater = Updater(module, choose_optimizer(config.optimizer), config.train.clip, None)
    batches, prepared = task.batches(0, 0), dict[int, list[MicroBatch]]()
    for number in range(2 * options.steps + 3):
        share = task.order.share(next(batches), options.rank, options.workers)
        prepared[number] = list(task.micro_batches(share, number))

    def step(number: int) -> float:
        begin = time.perf_counter()
        for micro in prepared[number]:
            with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
                loss = module(micro)
            updater.backward(loss / micro.target_words)
        updater.apply(1e-4)
        return time.perf_counter() - begin

    return step


if __name__ == "__main__":
    main()
