"""Measures the cost of checkpoints: the same training with shorter and shorter intervals between them.

`never` saves once at the end, as all runs do.

    python benchmarks/checkpoints.py configs/cifar10-resnet20.yaml --steps 1000 [key=value ...]

Training time is measured from the journal, without start-up and evaluation, which are the same for all rows. Every round
runs all rows, and the fastest run of each row counts, because other programs can only make it slower.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lockstep.explain.summary import Summary, summarise

INTERVALS: tuple[int | None, ...] = (None, 1000, 500, 100, 10)


def train(config: Path, settings: list[str], steps: int, every: int | None, run: Path) -> Summary:
    """Trains with a checkpoint `every` steps, or only at the end, and returns the summary of the run."""
    interval = steps + 1 if every is None else every
    own = [f"train.steps={steps}", f"train.checkpoint_every={interval}", f"train.evaluate_every={steps + 1}"]
    words = [sys.executable, "-m", "lockstep", "train", str(config), *own, *settings, "--run", str(run)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return summarise(run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("settings", nargs="*", help="key=value settings to change")
    parser.add_argument("--steps", type=int, default=1000, help="steps of each run")
    parser.add_argument("--rounds", type=int, default=1, help="how often each row is run")
    options = parser.parse_intermixed_args()
    best: dict[int | None, tuple[float, Summary, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for every in INTERVALS:
                run = Path(folder) / f"{every}-{number}"
                summary = train(options.config, options.settings, options.steps, every, run)
                seconds = summary.training_seconds + summary.checkpoint_seconds
                if every not in best or seconds < best[every][0]:
                    count = options.steps // every + (options.steps % every > 0) if every else 1
                    best[every] = (seconds, summary, count)
    table = Table(title=f"{options.config.name}, {options.steps:,} steps, fastest of {options.rounds}")
    for heading in ("every", "saves", "training s", "saving s", "ms per save", "total s", "relative to never"):
        table.add_column(heading, justify="right")
    for every, (seconds, summary, count) in best.items():
        saving = summary.checkpoint_seconds
        table.add_row(
            "never" if every is None else f"{every:,}",
            f"{count:,}",
            f"{summary.training_seconds:.1f}",
            f"{saving:.2f}",
            f"{1000 * saving / count:.0f}",
            f"{seconds:.1f}",
            f"{seconds / best[None][0]:.3f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
