"""Measures the time from the command to the first update, with a prepared corpus.

    python benchmarks/start.py [--text FOLDER] [--rounds 5] [--model S]

The time is from the start of the command to the time stamp of the first step in the journal. Every round measures all
settings, and figures are medians. Model and batch are those of `speed.py`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from speed import CORES, write_configs


def time_first_update(config: Path, run: Path, workers: int) -> float:
    command = [sys.executable, "-m", "lockstep", "train", str(config), "--workers", str(workers), "train.steps=1"]
    start = time.time()
    subprocess.run([*command, "--run", str(run)], check=True, capture_output=True)
    lines = [json.loads(line) for line in Path(run, "journal", "worker-0000.jsonl").read_text().splitlines()]
    return float(next(line["time"] for line in lines if line["kind"] == "step")) - start


def time_help() -> float:
    start = time.time()
    subprocess.run([sys.executable, "-m", "lockstep", "--help"], check=True, capture_output=True)
    return time.time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="folder with train.en, train.de, val.en, val.de")
    parser.add_argument("--rounds", type=int, default=5, help="how often each setting is measured")
    parser.add_argument("--model", default="S", help="S or base")
    options = parser.parse_args()
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        config = write_configs(Path(scratch), options.text, [options.model])[options.model]
        time_first_update(config, Path(scratch, "prepare"), 1)  # prepares the corpus and fills the disk cache
        for number in range(options.rounds):
            for workers in sorted({1, CORES}):
                name = f"first update, {workers} worker{'s' * (workers > 1)}"
                run = Path(scratch, f"{workers}-{number}")
                times.setdefault(name, []).append(time_first_update(config, run, workers))
            times.setdefault("lockstep --help", []).append(time_help())
    for name, seconds in times.items():
        print(f"{name:28} {statistics.median(seconds):5.2f} s  ({min(seconds):.2f}-{max(seconds):.2f})")


if __name__ == "__main__":
    main()
