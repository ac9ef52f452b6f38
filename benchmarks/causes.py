"""Checks that reports and ablations find known causes.

Slows runs down on purpose: by the network, by their input, by a slow worker, or not at all. Compares the verdict of the
report, which uses only the journal, with the ablation of `lockstep prove`. Every cause but the last costs more than a
quarter of a step, so both must call it the bottleneck. Without a cause nothing may be proven.

Needs root for the emulated network.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lockstep.explain.measures.bottleneck import find_bottleneck
from lockstep.explain.reading.record import Record
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.lab.prove import prove
from lockstep.lab.trial import run_trial


@dataclass(frozen=True)
class Cause:
    """Something that slows a run down, and the expected name of the bottleneck."""

    description: str
    name: str
    fault: str = ""
    link: str | None = None

    @property
    def proof(self) -> str:
        """What the ablation must find."""
        return "not proven" if self.name == "compute" else self.name


CAUSES = [
    Cause("a link of 300 Mbit/s", "network", link="300mbit"),
    Cause("every batch takes a second to make", "input", fault="slow:phase=input:ms=1000"),
    Cause("worker 1 computes half as fast", "imbalance: worker 1", fault="slow:phase=backward:rank=1:times=2"),
    Cause("nothing", "compute"),
]


@contextmanager
def set_fault(fault: str) -> Iterator[None]:
    """Sets LOCKSTEP_FAULT inside of the block."""
    os.environ["LOCKSTEP_FAULT"] = fault
    try:
        yield
    finally:
        del os.environ["LOCKSTEP_FAULT"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default="configs/demo.yaml", type=Path)
    parser.add_argument("settings", nargs="*", help="key=value settings to change")
    parser.add_argument("--steps", type=int, default=60, help="steps of each run and trial")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of `lockstep prove`")
    parser.add_argument("--only", choices=[cause.name for cause in CAUSES], help="measure only this cause")
    options = parser.parse_intermixed_args()
    say = Console(stderr=True)
    prepare = [sys.executable, "-m", "lockstep", "prepare", str(options.config), *options.settings]
    subprocess.run(prepare, check=True, capture_output=True)
    once = [f"train.steps={options.steps}", *(f"train.{name}_every=1000000" for name in ("evaluate", "checkpoint"))]
    table = Table("slowed down by", "cause found", "cost, from the journal", "cost, by ablation", "ratio")
    with tempfile.TemporaryDirectory() as folder:
        for number, cause in enumerate(CAUSES):
            if options.only not in (None, cause.name):
                continue
            run = Path(folder) / str(number)
            with set_fault(cause.fault), EmulatedNetwork(2, cause.link) if cause.link else nullcontext() as network:
                run_trial(run, options.config, [*options.settings, *once], 2, network=network)
            bottleneck = find_bottleneck(Record.open(run))
            assert bottleneck is not None
            say.print(bottleneck.sentence())
            with set_fault(cause.fault):
                proof = prove(run, options.steps, options.rounds, cause.link, say.print)
            say.print(f"{proof.verdict} {proof.sentence}.")
            reported = bottleneck.cost(bottleneck.cause)
            measured = proof.costs.get(bottleneck.cause, 1 - sum(proof.costs.values()))
            is_right = bottleneck.name == cause.name and proof.bottleneck == cause.proof
            result = "yes" if is_right else f"NO: {bottleneck.name}, {proof.bottleneck}"
            ratio = f"{reported / measured:.2f}" if measured else "-"
            table.add_row(cause.description, f"{cause.name}: {result}", f"{reported:.1%}", f"{measured:.1%}", ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
