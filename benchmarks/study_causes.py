"""Does a study put the loss under the right name? Studies of two workers that are held back on purpose: by threads that
are oversubscribed, by slow input, by unbalanced batches, by a slow link, by nothing but the machine itself.

    python benchmarks/study_causes.py [CONFIG] [key=value ...] [--steps 20] [--rounds 3] [--out FOLDER]

The slow link needs root. Interrupted, the same command with the same --out goes on.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

SHARES = ("contention", "input", "imbalance", "communication", "update")


@dataclass(frozen=True)
class Cause:
    """Something that takes speed-up away, and what it should be called."""

    made: str
    name: str
    options: list[str] = field(default_factory=list)
    fault: str = ""
    root: bool = False


def causes(cores: int) -> list[Cause]:
    by_count = ["data.grammar.train=600", "batch.words=null", "batch.sentences=300", "batch.balance=false"]
    return [
        Cause("every worker has as many threads as there are cores", "contention", ["--threads", str(cores)]),
        Cause("worker 1 gets a batch a second", "input", fault="slow:phase=input:rank=1:ms=1000"),
        Cause("short sentences for worker 0, long ones for worker 1", "imbalance", by_count),
        Cause("a link of 100 Mbit/s", "communication", ["--links", "100mbit"], root=True),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default="configs/demo.yaml")
    parser.add_argument("settings", nargs="*", help="key=value settings to change")
    parser.add_argument("--words", default="2000", help="of each worker in a step")
    parser.add_argument("--steps", default="20")
    parser.add_argument("--rounds", default="3")
    parser.add_argument("--only", choices=SHARES, help="one of the causes")
    parser.add_argument("--out", type=Path, help="a folder to keep the studies in")
    options = parser.parse_intermixed_args()
    table = Table("made for it", "named", "speed-up", "lost", *SHARES, "rest")
    with tempfile.TemporaryDirectory() as elsewhere:
        for cause in causes(len(os.sched_getaffinity(0))):
            if options.only not in (None, cause.name) or (cause.root and os.geteuid() != 0):
                continue
            folder = (options.out or Path(elsewhere)) / cause.name
            measured = ["--steps", options.steps, "--rounds", options.rounds, "--out", str(folder), "--json"]
            words = [options.config, f"batch.words={options.words}", *options.settings, *cause.options, *measured]
            command = [sys.executable, "-m", "lockstep", "study", *words]
            environment = os.environ | {"LOCKSTEP_FAULT": cause.fault}
            found = json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)
            row = next(row for row in found["rows"] if row["cell"]["strategy"] == "allreduce")
            loss = row["loss"]
            right = cause.name if found["cause"] == cause.name else f"NO: {found['cause']}, not {cause.name}"
            shares = [loss["lost"], *(loss["shares"][name] for name in SHARES), loss["not_explained"]]
            table.add_row(cause.made, right, f"{row['speedup']:.2f}", *(f"{value:.2f}" for value in shares))
    Console().print(table)


if __name__ == "__main__":
    main()
