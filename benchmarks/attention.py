"""What do steps of mixed lengths cost? Forward and backward passes of one worker's share, in turns: steps of sentences of
one length, mixed steps padded together, and mixed steps in parts of similar length (what Lockstep does).

    python benchmarks/attention.py configs/multi30k.yaml [key=value ...] --threads 1 --rounds 3
"""

import argparse
import time
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lockstep.config import load
from lockstep.models.packed import Layout
from lockstep.tasks.make_task import make_task
from lockstep.tasks.task import Task
from lockstep.tasks.translation import PairBatch

BATCHES = 12


def shares(task: Task, workers: int) -> list[Any]:
    """The first worker's share of the first steps."""
    return [
        task.micro_batches(task.order.share(batch, 0, workers), 1)[0] for batch in islice(task.batches(0, 0), BATCHES)
    ]


def pad_together(batch: PairBatch) -> PairBatch:
    source, target = (Layout.from_lengths(layout.lengths) for layout in (batch.source_layout, batch.target_layout))
    words = batch.source_words, batch.target_words
    return PairBatch(batch.source, source, batch.target_in, batch.target_out, target, *words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("settings", nargs="*", help="key=value settings to change")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="for whom a step is cut into shares")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_intermixed_args()
    torch.set_num_threads(options.threads)
    bucketed, mixed = (
        make_task(load(options.config, [*options.settings, f"batch.bucket={word}"])) for word in ("true", "false")
    )
    parts = shares(mixed, options.workers)
    kinds = {
        "one length": shares(bucketed, options.workers),
        "mixed, one part": [pad_together(batch) for batch in parts],
        "mixed, in parts": parts,
    }
    module = mixed.module().train()

    def autocast() -> AbstractContextManager[Any]:
        return torch.autocast("cpu", torch.bfloat16) if options.bf16 else nullcontext()

    def seconds_per_word(batch: PairBatch) -> float:
        begin = time.perf_counter()
        module.zero_grad()
        with autocast():
            loss = module(batch)
        (loss / batch.target_words).backward()
        return (time.perf_counter() - begin) / batch.target_words

    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for batches in kinds.values():
        seconds_per_word(batches[0])  # to warm up
    for _ in range(options.rounds):
        for place in range(BATCHES):
            for kind, batches in kinds.items():
                taken[kind].append(seconds_per_word(batches[place]))
    table = Table(title=f"{options.rounds * BATCHES} passes of each, in turns")
    for heading in ("steps", "grids", "words/s (mean)", "words/s (median)", "of one length"):
        table.add_column(heading, justify="right")
    fastest = mean(taken["one length"])
    for kind, seconds in taken.items():
        grids = mean(max(1, len(batch.source_layout.parts)) for batch in kinds[kind])
        speeds = (f"{1 / mean(seconds):,.0f}", f"{1 / median(seconds):,.0f}", f"{fastest / mean(seconds):.2f}")
        table.add_row(kind, f"{grids:.1f}", *speeds)
    Console().print(table)


if __name__ == "__main__":
    main()
