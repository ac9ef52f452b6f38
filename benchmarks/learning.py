"""Does the way in which batches are put together hurt learning? The same steps with random batches, with random batches
whose sentences are dealt to the workers by length, and with batches of sentences of similar length; several seeds each.

    python benchmarks/learning.py configs/multi30k.yaml --folder runs/learning [key=value ...]

Runs are kept in the folder: the same command goes on where it was interrupted. Seeds take turns.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

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


def lockstep(*words: object) -> str:
    command = [sys.executable, "-m", "lockstep", *(str(word) for word in words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def learn(config: str, settings: list[str], workers: int, run: Path) -> dict[str, Any]:
    """What a run of this kind ends with; one that is there already is not trained again."""
    result = run / "learnt.json"
    if not result.exists():
        lockstep("train", config, *settings, "--workers", workers, "--run", run)
        test = json.loads(lockstep("evaluate", run, "--json"))
        record = Record(run)
        summary, found = summarise_record(record), find_bottleneck(record)
        last = [line for line in record.primary.events if line["kind"] == "evaluation"][-1]["scores"]
        assert found is not None
        facts = {
            "loss": last["loss"],
            "validation": last[summary.metric],
            "test": test[summary.metric],
            "per_second": summary.words_per_second,
            "imbalance": found.cost("imbalance"),
        }
        result.write_text(json.dumps(facts))
    return dict(json.loads(result.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("settings", nargs="*", help="key=value settings to change")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("runs/learning"))
    options = parser.parse_intermixed_args()
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for seed in range(1, options.seeds + 1):
        for kind, chosen in KINDS.items():
            run = options.folder / f"{kind.replace(', ', '-')}-{seed}"
            words = [*options.settings, *chosen, f"train.seed={seed}"]
            found[kind].append(learn(options.config, words, options.workers, run))
            Console(stderr=True).print(f"seed {seed}, {kind}: {found[kind][-1]}")
    table = Table(title=f"{options.seeds} seeds, mean +- standard deviation")
    for heading in ("batches", "validation loss", "validation", "test", "per second", "waiting for the slower"):
        table.add_column(heading, justify="right")
    for kind, runs in found.items():
        spread = [
            f"{mean(values):.{digits}f} +- {stdev(values) if len(values) > 1 else 0:.{digits}f}"
            for name, digits in (("loss", 3), ("validation", 2), ("test", 2), ("per_second", 0))
            for values in [[run[name] for run in runs]]
        ]
        table.add_row(kind, *spread, f"{mean(run['imbalance'] for run in runs):.1%}")
    Console().print(table)


if __name__ == "__main__":
    main()
