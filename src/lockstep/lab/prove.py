"""What holds a run back, shown by doing without it: short trainings of the same job on the same machine, each without
one thing. What the step gains is what that thing costs."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from lockstep.errors import LockstepError
from lockstep.explain.bottleneck import NOT_PROVEN, unequal
from lockstep.explain.reading.steps import Column
from lockstep.files import read_json, write_json
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.lab.trial import Line, Trial, attempt
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import read

MATTERS = 0.1
"""A cost below this share of the step is not called what holds the run back."""


@dataclass(frozen=True)
class Proof:
    """Medians of the measured steps. Costs are shares of the step; what is left is computing."""

    step_seconds: float
    without_communication_seconds: float  # of the slowest worker, which the others wait for
    free_input_seconds: float
    alone_seconds: float  # one worker with its share of the batch, and the machine to itself
    costs: dict[str, float]  # network, input, imbalance
    bottleneck: str  # network, input, imbalance: worker k, compute, or NOT_PROVEN
    sentence: str
    workers: int
    steps: int  # measured, of each kind
    link: str | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def prove(
    folder: Path, steps: int = 30, rounds: int = 3, link: str | None = None, say: Callable[[str], None] = print
) -> Proof:
    """Runs the trials in turns, so that what else happens on the machine hits all alike, and keeps the proof in the run
    directory. With `link` every worker is an emulated host behind a link of that rate."""
    run = RunDirectory(folder)
    last = read(run.journal).last_launch
    if last is None or not run.config.exists():
        raise LockstepError(f"{folder} is not a run that has begun.", "Name the folder of a run.", code=2)
    workers, servers = last["workers"], last.get("servers", 0)
    choices = read_json(run.choices) or {}
    settings = _settings(choices, last, steps)
    shared = dict(choices["batch"])
    alone = one_share(shared, workers)
    kinds: dict[str, tuple[list[str], int, int, str]] = {
        "full": ([], workers, servers, "nothing"),
        "communication": ([], workers, servers, "communication"),
        "input": ([], workers, servers, "input"),
        "alone": ([*alone, "strategy.name=auto"], 1, 0, "nothing"),
    }
    found: dict[str, list[Trial]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="lockstep-prove-") as name:
        for turn in range(rounds):
            for kind, (more, count, holders, without) in kinds.items():
                say(f"Trial {turn + 1} of {rounds}: {_TOLD[kind]}")
                trial = Path(name) / f"{kind}-{turn}"
                words = (trial, run.config, [*settings, *more], count, holders, without)
                if link is None:
                    found[kind].append(attempt(*words))
                else:
                    with EmulatedNetwork(count + holders, link) as network:
                        found[kind].append(attempt(*words, network=network))
    proof = judge(found, workers, link)
    write_json(folder / "proof.json", proof.as_dict())
    return proof


_TOLD = {
    "full": "the job as it is",
    "communication": "without communication",
    "input": "with input that costs nothing",
    "alone": "one worker alone",
}


def _settings(choices: dict[str, Any], launch: Line, steps: int) -> list[str]:
    """The run's own choices, so that a trial computes as the run did."""
    batch = [f"batch.{name}={json.dumps(value)}" for name, value in choices["batch"].items()]
    often = [f"train.{name}=1000000000" for name in ("evaluate_every", "checkpoint_every")]
    kept = [f"train.threads={launch['threads']}", f"train.precision={launch['precision']}", "train.patience=null"]
    return [*batch, *often, *kept, f"train.steps={steps}"]


def one_share(batch: dict[str, int | None], workers: int) -> list[str]:
    """Settings of the batch that one of so many workers computes."""
    sizes = {name: batch.get(name) for name in ("words", "sentences", "images")}
    return [f"batch.{name}={'null' if size is None else max(1, size // workers)}" for name, size in sizes.items()]


def judge(found: dict[str, list[Trial]], workers: int, link: str | None = None) -> Proof:
    """Costs from trials of every kind. Without communication nobody waits: from what each worker takes for a step follows
    what a step in lockstep would take, that of the last one. Where workers go their own way there is no last one."""
    step, without = _median(found["full"]), _median(found["communication"])
    free, alone = _median(found["input"]), _median(found["alone"])
    waiting, who, slowest = 0.0, "", 0
    if all(line.get("scope") != "worker" for trial in found["full"] for lines in trial.steps for line in lines):
        silent = np.hstack([_by_worker(trial) for trial in found["communication"]])
        slowest_steps, uneven = silent.max(0), unequal(silent, silent.argmax(0))
        without = float(np.median(slowest_steps))
        waiting, slowest = float(np.median(slowest_steps - uneven.fair)) / step, uneven.slowest
        who = f"worker {slowest}" if uneven.steady else "whichever worker is last"
    costs = {
        "network": max(0.0, 1 - without / step),
        "input": max(0.0, 1 - free / step),
        "imbalance": max(0.0, waiting),
    }
    name = max(costs, key=lambda cost: costs[cost])
    said = {"network": "communication", "input": "input", "imbalance": f"waiting for {who}"}[name]
    figures = (
        f"step {_ms(step)}; without communication {_ms(without)}; with free input {_ms(free)}; "
        f"one worker alone {_ms(alone)}"
    )
    scatter = max(without, free) / step - 1  # nothing can take longer for being left out
    if scatter > max(MATTERS, costs[name]):
        bottleneck = NOT_PROVEN
        sentence = (
            f"{figures}: steps were up to {scatter:.0%} longer with something left out, so the trials vary more than "
            "anything costs; repeat it with more rounds and nothing else on the machine"
        )
    elif costs[name] < MATTERS:
        bottleneck, sentence = "compute", f"{figures}: computing is what takes the time"
    else:
        bottleneck = f"imbalance: worker {slowest}" if name == "imbalance" else name
        sentence = f"{figures}: {said} costs {costs[name]:.0%}"
    measured = sum(len(trial.measured[0]) for trial in found["full"])
    return Proof(step, without, free, alone, costs, bottleneck, sentence, workers, measured, link)


def _by_worker(trial: Trial) -> Column:
    """Seconds of every step that all workers measured, [workers, steps]."""
    by_step = [{line["step"]: line["seconds"] for line in lines} for lines in trial.measured]
    common = sorted(set.intersection(*(set(steps) for steps in by_step)))
    return np.array([[steps[step] for step in common] for steps in by_step])


def _median(trials: list[Trial]) -> float:
    """Of all workers: those that step together take the same time."""
    return median(line["seconds"] for trial in trials for lines in trial.measured for line in lines)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"
