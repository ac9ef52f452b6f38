"""Measures the cost of steps with sentences of mixed lengths.

Times forward and backward passes of one worker's share, in turns: steps with sentences of one length, mixed steps with
attention over one padded grid, and mixed steps with attention in parts of similar length (what Lockstep does).

    python benchmarks/attention.py configs/multi30k.yaml [key=value ...] --threads 1 --rounds 3
"""

import argparse
import time
from itertools import islice
from pathlib import Path
from statistics import mean, median

import torch
from rich.console import Console
from rich.table import Table

from lockstep.config import load
from lockstep.models.packed import Layout
from lockstep.tasks.make_task import make_task
from lockstep.tasks.task import Task
from lockstep.tasks.translation import PairBatch

BATCHES = 12


def make_shares(task: Task, workers: int) -> list[PairBatch]:
    """Returns the first worker's share of the first steps."""
    shares = []
    for batch in islice(task.batches(0, 0), BATCHES):
        share = task.micro_batches(task.order.share(batch, 0, workers), 1)[0]
        assert isinstance(share, PairBatch)
        shares.append(share)
    return shares


def merge_parts(batch: PairBatch) -> PairBatch:
    """Returns the batch with attention over one padded grid."""
    source, target = (Layout.from_lengths(layout.lengths) for layout in (batch.source_layout, batch.target_layout))
    words = batch.source_words, batch.target_words
    return PairBatch(batch.source, source, batch.target_in, batch.target_out, target, *words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("settings", nargs="*", help="key=value settings to change")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--workers", type=int, default=2, help="number of shares of a step")
    parser.add_argument("--rounds", type=int, default=3, help="how often all steps are timed")
    parser.add_argument("--bf16", action="store_true", help="compute in bf16 instead of fp32")
    options = parser.parse_intermixed_args()
    torch.set_num_threads(options.threads)
    bucketed, mixed = (
        make_task(load(options.config, [*options.settings, f"batch.bucket={word}"])) for word in ("true", "false")
    )
    parts = make_shares(mixed, options.workers)
    kinds = {
        "one length": make_shares(bucketed, options.workers),
        "mixed, one grid": [merge_parts(batch) for batch in parts],
        "mixed, in parts": parts,
    }
    module = mixed.module().train()

    def time_word(batch: PairBatch) -> float:
        start = time.perf_counter()
        module.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
            loss = module(batch)
        (loss / batch.target_words).backward()
        return (time.perf_counter() - start) / batch.target_words

    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for batches in kinds.values():
        time_word(batches[0])  # warm-up
    for _ in range(options.rounds):
        for index in range(BATCHES):
            for kind, batches in kinds.items():
                times[kind].append(time_word(batches[index]))
    table = Table(title=f"{options.rounds * BATCHES} passes of each, in turns")
    for heading in ("steps", "grids", "words/s (mean)", "words/s (median)", "relative to one length"):
        table.add_column(heading, justify="right")
    fastest = mean(times["one length"])
    for kind, seconds in times.items():
        grids = mean(max(1, len(batch.source_layout.parts)) for batch in kinds[kind])
        speeds = (f"{1 / mean(seconds):,.0f}", f"{1 / median(seconds):,.0f}", f"{fastest / mean(seconds):.2f}")
        table.add_row(kind, f"{grids:.1f}", *speeds)
    Console().print(table)


if __name__ == "__main__":
    main()
