"""Checks what `lockstep prove` calls proven.

`record` trains the demo on a quiet machine and beside programs that keep the cores busy, and keeps the step times of both.
`resample` makes trials without any difference from blocks of those steps, a thousand times. What they prove is wrong.
`trials` runs real proofs: of jobs that are slowed down on purpose, and of the job as it is beside busy programs. Every
finished one is added to a file at once. The same command continues, and skips what this commit has measured.

`trials` needs root for the emulated network. Nothing else should use the machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from causes import set_fault
from pydantic import JsonValue
from rich.console import Console
from rich.table import Table

from lockstep.explain.reading.steps import Column
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.lab.proof_decision import Circumstances, decide
from lockstep.lab.prove import prove
from lockstep.lab.trial import NEVER, make_trial_settings, run_trial

RECORDED = Path(__file__).with_name("recorded_steps.json")
KINDS = ("full", "communication", "input")
BURNER = "while True: sum(range(100000))"


def resample(steps: Column, rounds: int, length: int, block: int, draw: np.random.Generator) -> list[dict[str, Column]]:
    """Returns rounds of trials without any difference: every kind consists of blocks of the same recorded steps, taken in
    one piece because neighbouring steps are disturbed alike. `steps` are seconds, [workers, steps]."""

    def draw_trial() -> Column:
        starts = draw.integers(0, steps.shape[1] - block + 1, -(-length // block))
        places = (starts[:, None] + np.arange(block)).ravel()[:length]
        return steps[:, places]

    return [{kind: draw_trial() for kind in KINDS} for _ in range(rounds)]


def count_proven(steps: Column, times: int, rounds: int, length: int, block: int, seed: int = 0) -> int:
    """Returns in how many of `times` proofs without a difference something is proven."""
    draw = np.random.default_rng(seed)
    return sum(bool(decide(resample(steps, rounds, length, block, draw), Circumstances()).proven) for _ in range(times))


def read_recorded(path: Path = RECORDED) -> dict[str, Column]:
    """Returns the seconds of the recorded steps by the name of their run, [workers, steps]."""
    facts = json.loads(path.read_text())
    return {name: np.array(run["milliseconds"]) / 1e3 for name, run in facts["runs"].items()}


@contextmanager
def burn(programs: int) -> Iterator[None]:
    """Keeps cores busy with other programs. They are not children of this process, which would count as the run."""
    start = f"import subprocess as s, sys; print(s.Popen([sys.executable, '-c', {BURNER!r}], stdout=s.DEVNULL).pid)"
    command = [sys.executable, "-c", start]
    pids = [int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout) for _ in range(programs)]
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, 9)


def print_resampled(options: argparse.Namespace) -> None:
    table = Table("recorded run", "rounds", "steps", "block", f"proven, of {options.times:,} without a difference")
    for name, steps in read_recorded().items():
        for rounds in options.rounds:
            for block in (1, 5, options.steps):
                proven = count_proven(steps, options.times, rounds, options.steps, block)
                table.add_row(
                    name, str(rounds), str(options.steps), str(block), f"{proven} ({proven / options.times:.1%})"
                )
    Console().print(table)


def record(options: argparse.Namespace) -> None:
    runs: dict[str, JsonValue] = {}
    settings = [*make_trial_settings(options.steps), "watch.probe=false"]
    with tempfile.TemporaryDirectory() as folder:
        for name, programs in (("quiet", 0), ("disturbed", 1)):
            with burn(programs):
                trial = run_trial(Path(folder) / name, options.config, [*options.settings, *settings], 2)
            seconds: JsonValue = [[round(1e3 * line["seconds"], 2) for line in lines] for lines in trial.measured]
            runs[name] = {"others_share": round(trial.others_share or 0.0, 3), "milliseconds": seconds}
    facts = {"commit": read_commit(), "cores": len(os.sched_getaffinity(0)), "runs": runs}
    RECORDED.write_text(json.dumps(facts) + "\n")


@dataclass(frozen=True)
class Case:
    """A job to prove, and what the proof may say about it."""

    name: str
    expected: str
    fault: str = ""
    link: str | None = None
    programs: int = 0  # that keep a core busy during run and trials


QUIET = (
    Case("a link of 300 Mbit/s", "network", link="300mbit"),
    Case("every batch takes 250 ms to make", "input", fault="slow:phase=input:ms=250"),
    Case("worker 1 computes a third as fast", "imbalance: worker 1", fault="slow:phase=backward:rank=1:times=3"),
)
DISTURBED = (
    Case("nothing, one busy program", "not proven", programs=1),
    Case("nothing, two busy programs", "not proven", programs=2),
)


def list_trials(quiet: int, disturbed: int) -> list[tuple[str, Case]]:
    """Returns the cases in turn, each with the name of its repetition."""
    places = [(QUIET, quiet), (DISTURBED, disturbed)]
    return [
        (f"{cases[i % len(cases)].name}, {i // len(cases) + 1}", cases[i % len(cases)])
        for cases, count in places
        for i in range(count)
    ]


def run_case(case: Case, options: argparse.Namespace) -> dict[str, JsonValue]:
    begin, say = time.time(), Console(stderr=True)
    once = [
        f"train.steps={options.steps + 15}",
        *(f"train.{name}_every={NEVER}" for name in ("evaluate", "checkpoint")),
    ]
    with tempfile.TemporaryDirectory() as folder, set_fault(case.fault), burn(case.programs):
        run = Path(folder) / "run"
        with EmulatedNetwork(2, case.link) if case.link else nullcontext() as network:
            run_trial(run, options.config, [*options.settings, *once], 2, network=network)
        proof = prove(run, options.steps, options.rounds, case.link, lambda text: say.print(text, style="dim"))
    say.print(f"{case.name}: {proof.verdict} {proof.sentence}.")
    return {"seconds": round(time.time() - begin, 1), **proof.as_dict()}


def run_trials(options: argparse.Namespace) -> None:
    """Runs the trials that the file does not have yet, and prints the table of all."""
    settings = {
        "config": str(options.config),
        "settings": options.settings,
        "steps": options.steps,
        "rounds": options.rounds,
    }
    key: dict[str, JsonValue] = {"commit": read_commit(), **settings}
    results: Path = options.results
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    done = {line["trial"]: line for line in lines if all(line[name] == value for name, value in key.items())}
    wanted = list_trials(options.quiet, options.disturbed)
    prepare = [sys.executable, "-m", "lockstep", "prepare", str(options.config), *options.settings]
    subprocess.run(prepare, check=True, capture_output=True)
    for name, case in wanted:
        if name not in done:
            done[name] = {"trial": name, **key, **asdict(case), **run_case(case, options)}
            with results.open("a") as file:
                file.write(json.dumps(done[name]) + "\n")
    print_trials([done[name] for name, _ in wanted])


def print_trials(lines: Sequence[dict[str, JsonValue]]) -> None:
    table = Table("slowed down by", "trials", "right", "not proven", "wrong", "mean seconds")
    for name in dict.fromkeys(str(line["name"]) for line in lines):
        own = [line for line in lines if line["name"] == name]
        right = sum(line["bottleneck"] == line["expected"] for line in own)
        unproven = sum("not proven" == line["bottleneck"] != line["expected"] for line in own)
        mean = np.mean([float(str(line["seconds"])) for line in own])
        table.add_row(name, *(str(n) for n in (len(own), right, unproven, len(own) - right - unproven)), f"{mean:.0f}")
    Console().print(table)


def read_commit() -> str:
    """Returns the commit of the source, with a mark when files have changed since."""
    here = Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    return subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", default=Path("configs/demo.yaml"), type=Path)
    common.add_argument("settings", nargs="*", help="key=value settings to change")
    recorder = commands.add_parser("record", parents=[common], help="record steps without a difference")
    recorder.add_argument("--steps", type=int, default=305)
    recorder.set_defaults(work=record)
    resampler = commands.add_parser("resample", help="prove nothing from resampled steps")
    resampler.add_argument("--times", type=int, default=1000)
    resampler.add_argument("--rounds", type=int, nargs="*", default=[3, 4, 6, 10])
    resampler.add_argument("--steps", type=int, default=15, help="measured steps of a trial")
    resampler.set_defaults(work=print_resampled)
    trials = commands.add_parser("trials", parents=[common], help="prove causes that are known")
    trials.add_argument("--quiet", type=int, default=15, help="trials of jobs that are slowed down on purpose")
    trials.add_argument("--disturbed", type=int, default=15, help="trials beside busy programs")
    trials.add_argument("--steps", type=int, default=15, help="steps of a trial, five of them warm-up")
    trials.add_argument("--rounds", type=int, default=4)
    trials.add_argument(
        "--results", type=Path, required=True, help="the file that gets a line for every finished trial"
    )
    trials.set_defaults(work=run_trials)
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    main()
