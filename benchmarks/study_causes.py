"""Checks that a study attributes lost speed-up to the right cause.

Measures studies of two workers that are slowed down on purpose: by oversubscribed threads, by slow input, by unbalanced
batches, by a slow link.

    python benchmarks/study_causes.py [CONFIG] [key=value ...] [--steps 20] [--rounds 3] [--out FOLDER]

The slow link needs root and is left out without it. The same command with the same --out continues after an
interruption.
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

CAUSES = ("contention", "input", "imbalance", "communication", "update")


@dataclass(frozen=True)
class Cause:
    """Something that takes speed-up away, and the expected name of the largest cause."""

    description: str
    name: str
    options: list[str] = field(default_factory=list)
    fault: str = ""
    needs_root: bool = False


def list_causes(cores: int) -> list[Cause]:
    unbalanced = ["data.grammar.train=600", "batch.words=null", "batch.sentences=300", "batch.balance=false"]
    return [
        Cause("every worker has as many threads as there are cores", "contention", ["--threads", str(cores)]),
        Cause("worker 1 gets a batch a second", "input", fault="slow:phase=input:rank=1:ms=1000"),
        Cause("short sentences for worker 0, long ones for worker 1", "imbalance", unbalanced),
        Cause("a link of 100 Mbit/s", "communication", ["--links", "100mbit"], needs_root=True),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default="configs/demo.yaml")
    parser.add_argument("settings", nargs="*", help="key=value settings to change")
    parser.add_argument("--words", default="2000", help="target words of each worker in a step")
    parser.add_argument("--steps", default="20", help="measured steps of each trial")
    parser.add_argument("--rounds", default="3", help="rounds of each study")
    parser.add_argument("--only", choices=CAUSES, help="measure only this cause")
    parser.add_argument("--out", type=Path, help="folder for the studies; default: a temporary one")
    options = parser.parse_intermixed_args()
    table = Table("slowed down by", "cause found", "speed-up", "lost", *CAUSES, "rest")
    with tempfile.TemporaryDirectory() as temporary:
        for cause in list_causes(len(os.sched_getaffinity(0))):
            if options.only not in (None, cause.name) or (cause.needs_root and os.geteuid() != 0):
                continue
            folder = (options.out or Path(temporary)) / cause.name
            measured = ["--steps", options.steps, "--rounds", options.rounds, "--out", str(folder), "--json"]
            words = [options.config, f"batch.words={options.words}", *options.settings, *cause.options, *measured]
            command = [sys.executable, "-m", "lockstep", "study", *words]
            environment = os.environ | {"LOCKSTEP_FAULT": cause.fault}
            results = json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)
            row = next(row for row in results["rows"] if row["cell"]["strategy"] == "allreduce")
            loss = row["loss"]
            result = cause.name if results["cause"] == cause.name else f"NO: {results['cause']}, not {cause.name}"
            values = [loss["lost"], *(loss["shares"][name] for name in CAUSES), loss["not_explained"]]
            table.add_row(cause.description, result, f"{row['speedup']:.2f}", *(f"{value:.2f}" for value in values))
    Console().print(table)


if __name__ == "__main__":
    main()
