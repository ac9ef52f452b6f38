"""Measures how the composition of batches affects learning.

Trains the same number of steps with random batches, with random batches whose sentences are dealt to the workers by length,
and with batches of sentences of similar length, with several seeds each.

    python benchmarks/learning.py configs/multi30k.yaml --folder runs/learning [key=value ...]

Runs stay in the folder, so the same command continues after an interruption. Every seed runs all kinds before the next.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import TypedDict

from rich.console import Console
from rich.table import Table

from lockstep.explain.measures.bottleneck import find_bottleneck
from lockstep.explain.reading.record import Record
from lockstep.explain.summary import summarise_record

KINDS = {
    "random": ("batch.bucket=false", "batch.balance=false"),
    "random, balanced": ("batch.bucket=false", "batch.balance=true"),
    "bucketed, balanced": ("batch.bucket=true", "batch.balance=true"),
}


class Outcome(TypedDict):
    """What a run ends with."""

    loss: float
    validation: float
    test: float
    per_second: float | None
    imbalance: float


def lockstep(*words: object) -> str:
    """Runs a command of Lockstep and returns its output."""
    command = [sys.executable, "-m", "lockstep", *(str(word) for word in words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def learn(config: str, settings: list[str], workers: int, run: Path) -> Outcome:
    """Trains a run, unless it is already finished, and returns its outcome."""
    result = run / "learnt.json"
    if not result.exists():
        lockstep("train", config, *settings, "--workers", workers, "--run", run)
        test = json.loads(lockstep("evaluate", run, "--json"))
        record = Record(run)
        summary, bottleneck = summarise_record(record), find_bottleneck(record)
        last = [line for line in record.primary.events if line["kind"] == "evaluation"][-1]["scores"]
        assert bottleneck is not None
        outcome: Outcome = {
            "loss": last["loss"],
            "validation": last[summary.metric],
            "test": test[summary.metric],
            "per_second": summary.words_per_second,
            "imbalance": bottleneck.cost("imbalance"),
        }
        result.write_text(json.dumps(outcome))
    stored: Outcome = json.loads(result.read_text())
    return stored


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("settings", nargs="*", help="key=value settings to change")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--workers", type=int, default=2, help="workers of each run")
    parser.add_argument("--folder", type=Path, default=Path("runs/learning"), help="folder of the runs")
    options = parser.parse_intermixed_args()
    outcomes: dict[str, list[Outcome]] = {kind: [] for kind in KINDS}
    for seed in range(1, options.seeds + 1):
        for kind, chosen in KINDS.items():
            run = options.folder / f"{kind.replace(', ', '-')}-{seed}"
            words = [*options.settings, *chosen, f"train.seed={seed}"]
            outcomes[kind].append(learn(options.config, words, options.workers, run))
            Console(stderr=True).print(f"seed {seed}, {kind}: {outcomes[kind][-1]}")
    table = Table(title=f"{options.seeds} seeds, mean +- standard deviation")
    for heading in ("batches", "validation loss", "validation", "test", "per second", "waiting for the slower worker"):
        table.add_column(heading, justify="right")
    for kind, runs in outcomes.items():
        columns = (
            ([run["loss"] for run in runs], 3),
            ([run["validation"] for run in runs], 2),
            ([run["test"] for run in runs], 2),
            ([run["per_second"] or 0.0 for run in runs], 0),
        )
        cells = [
            f"{mean(values):.{digits}f} +- {stdev(values) if len(values) > 1 else 0:.{digits}f}"
            for values, digits in columns
        ]
        table.add_row(kind, *cells, f"{mean(run['imbalance'] for run in runs):.1%}")
    Console().print(table)


if __name__ == "__main__":
    main()
