"""Target words per second of `lockstep train` itself, for several ways to use the same cores.

    python benchmarks/speed.py [--steps 30] [--rounds 3] [--text FOLDER]

Runs are interleaved, so that a noisy machine hits every setting alike; figures are medians over the rounds, warm-up steps
left out, and the ratio is to the first row. FOLDER holds train.en, train.de, val.en and val.de; without it the built-in
grammar writes the text.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

MODEL_S = {"encoder_layers": 3, "decoder_layers": 3, "width": 256, "feed_forward": 1024, "heads": 4, "dropout": 0.1}


def settings(cores: int) -> list[tuple[str, list[str]]]:
    """Name and command-line words of every row."""
    rows = [(f"1 worker x {cores} threads", ["--workers", "1", f"train.threads={cores}"])]
    if cores > 1:
        rows.append((f"{cores} workers x 1 thread, allreduce", ["--workers", str(cores), "train.threads=1"]))
    return rows


def measure(config: Path, words: list[str], run: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "lockstep", "train", str(config), *words, "--run", str(run), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--text", type=Path)
    options = parser.parse_args()
    text = {"folder": str(options.text.absolute()), "train": ["train"], "validation": ["val"]} if options.text else {}
    rows = settings(len(os.sched_getaffinity(0)))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name, _ in rows}
    with tempfile.TemporaryDirectory() as scratch:
        data: dict[str, Any] = text or {"grammar": {"train": 30_000, "validation": 8}}
        config = {
            "data": data | {"corpus": f"{scratch}/corpus", "vocabulary": {"size": 8000 if text else 3000}},
            "batch": {"words": 4096},
            "model": MODEL_S,
            "train": {"steps": options.steps, "evaluate_every": 10**9, "checkpoint_every": 10**9, "precision": "fp32"},
            "search": {"beam": 1, "max_ratio": 0.1},
        }
        path = Path(scratch, "speed.yaml")
        path.write_text(yaml.safe_dump(config))
        for number in range(options.rounds):
            for name, words in rows:
                print(f"round {number + 1}/{options.rounds}: {name}", file=sys.stderr)
                found[name].append(measure(path, words, Path(scratch, f"{name} {number}")))
    print_table(found)


def print_table(found: dict[str, list[dict[str, Any]]]) -> None:
    base: float | None = None
    print(f"{'setting':38} {'words/s':>8} {'ratio':>6}  a step is")
    for name, results in found.items():
        speed = statistics.median(result["words_per_second"] for result in results)
        base = base or speed
        phases = {
            phase: statistics.median(r["phase_shares"][phase] for r in results) for phase in results[0]["phase_shares"]
        }
        shares = ", ".join(f"{phase} {share:.0%}" for phase, share in phases.items())
        print(f"{name:38} {speed:8,.0f} {speed / base:6.2f}  {shares}")


if __name__ == "__main__":
    main()
