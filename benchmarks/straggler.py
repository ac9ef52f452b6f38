"""Measures the cost of a slow worker: `server` in sync and async mode, with one of two workers slowed down, in turns.

Words per second are those of all workers in wall time, from the end of the warm-up to the last step.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from lockstep.run.journal import read

MODES = {
    "sync": ["strategy.mode=sync"],
    "async": ["strategy.mode=async"],
    "async, staleness 4": ["strategy.mode=async", "strategy.staleness=4"],
}


def measure_speed(run: Path, workers: int) -> float:
    lines = sorted(
        (line for rank in range(workers) for line in read(run / "journal", rank).steps), key=lambda line: line["time"]
    )
    warm = max(line["time"] for line in lines if line["warmup"])
    measured = [line for line in lines if line["time"] > warm]
    return sum(line["words"]["target"] for line in measured) / (measured[-1]["time"] - warm)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default="configs/demo.yaml")
    parser.add_argument("settings", nargs="*", help="key=value settings to change")
    parser.add_argument("--times", type=int, default=3, help="factor by which the slow worker is slower")
    parser.add_argument("--steps", type=int, default=60, help="steps of each run")
    parser.add_argument("--rounds", type=int, default=3, help="how often each mode is run")
    parser.add_argument(
        "--servers", type=int, default=1, help="dedicated parameter servers; 0: every worker has a shard"
    )
    options = parser.parse_intermixed_args()
    command = [sys.executable, "-m", "lockstep"]
    subprocess.run([*command, "prepare", options.config, *options.settings], check=True, capture_output=True)
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    environment = os.environ | {"LOCKSTEP_FAULT": f"slow:phase=backward:rank=1:times={options.times}"}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for mode, settings in MODES.items():
                run = Path(folder) / f"{mode}-{number}"
                once = [f"train.steps={options.steps}", "train.evaluate_every=1000000", "search.beam=1"]
                words = ["train", options.config, *options.settings, *once, "strategy.name=server", *settings]
                words += ["--servers", str(options.servers), "--workers", "2", "--run", str(run)]
                subprocess.run([*command, *words], env=environment, check=True, capture_output=True)
                rates[mode].append(measure_speed(run, 2))
                Console(stderr=True).print(f"{mode}: {rates[mode][-1]:,.0f} words/s")
    table = Table("mode", "words/s, median", "lowest", "highest", "x sync", title=f"One worker {options.times}x slower")
    for mode, speeds in rates.items():
        cells = [f"{value:,.0f}" for value in (median(speeds), min(speeds), max(speeds))]
        table.add_row(mode, *cells, f"{median(speeds) / median(rates['sync']):.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
