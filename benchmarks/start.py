"""How long from the command to the first update, on a corpus that is prepared already.

    python benchmarks/start.py [--text FOLDER] [--rounds 5] [--model S]

The clock starts before the command does and stops at the time stamp of the first step's journal line; settings are
interleaved, figures are medians. The model and batch are those of `speed.py`.
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


def first_update(config: Path, run: Path, workers: int) -> float:
    command = [sys.executable, "-m", "lockstep", "train", str(config), "--workers", str(workers), "train.steps=1"]
    begin = time.time()
    subprocess.run([*command, "--run", str(run)], check=True, capture_output=True)
    lines = [json.loads(line) for line in Path(run, "journal", "worker-0000.jsonl").read_text().splitlines()]
    return float(next(line["time"] for line in lines if line["kind"] == "step")) - begin


def show_help() -> float:
    begin = time.time()
    subprocess.run([sys.executable, "-m", "lockstep", "--help"], check=True, capture_output=True)
    return time.time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="folder with train.en, train.de, val.en, val.de")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="S")
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        config = write_configs(Path(scratch), options.text, [options.model])[options.model]
        first_update(config, Path(scratch, "prepare"), 1)  # prepares the corpus and warms the disk cache
        for number in range(options.rounds):
            for workers in sorted({1, CORES}):
                name = f"first update, {workers} worker{'s' * (workers > 1)}"
                seconds = first_update(config, Path(scratch, f"{workers}-{number}"), workers)
                found.setdefault(name, []).append(seconds)
            found.setdefault("lockstep --help", []).append(show_help())
    for name, seconds_found in found.items():
        print(
            f"{name:28} {statistics.median(seconds_found):5.2f} s  ({min(seconds_found):.2f}-{max(seconds_found):.2f})"
        )


if __name__ == "__main__":
    main()
