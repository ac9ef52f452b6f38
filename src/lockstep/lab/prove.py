"""An ablation of a run: short trainings of the same job on the same machine, each without one thing. The time that a step
gains is the cost of that thing."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from lockstep.errors import LockstepError
from lockstep.explain.measures.bottleneck import IMBALANCE, NOT_PROVEN, WORTH, compare_work, judge_costs
from lockstep.explain.reading.steps import Column
from lockstep.files import read_json, write_json
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.lab.trial import Line, Trial, attempt
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import read


@dataclass(frozen=True)
class Proof:
    """Medians of the measured steps. Costs are shares of the step; what is left is computing."""

    step_seconds: float
    without_communication_seconds: float  # of the slowest worker
    free_input_seconds: float
    alone_seconds: float  # one worker with its share of the batch, and the machine to itself
    costs: dict[str, float]  # network, input, imbalance
    bottleneck: str  # network, input, imbalance, imbalance: worker k, compute, or NOT_PROVEN
    sentence: str  # the measured times and the largest cost
    verdict: str  # what a step is bound by, or that nothing is proven
    workers: int
    steps: int  # measured, of each kind
    link: str | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def prove(
    folder: Path, steps: int = 30, rounds: int = 3, link: str | None = None, say: Callable[[str], None] = print
) -> Proof:
    """Runs the trials in turns, so that other load on the machine affects all of them alike, and saves the proof in the
    run directory. With `link` every worker is an emulated host behind a link of that rate."""
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
    "input": "with free input",
    "alone": "one worker alone",
}


def _settings(choices: dict[str, Any], launch: Line, steps: int) -> list[str]:
    """The run's own choices, so that a trial computes as the run did."""
    batch = [f"batch.{name}={json.dumps(value)}" for name, value in choices["batch"].items()]
    often = [f"train.{name}=1000000000" for name in ("evaluate_every", "checkpoint_every")]
    kept = [f"train.threads={launch['threads']}", f"train.precision={launch['precision']}", "train.patience=null"]
    return [*batch, *often, *kept, f"train.steps={steps}"]


def one_share(batch: dict[str, int | None], workers: int) -> list[str]:
    """Settings of the share of a batch that each of the `workers` computes."""
    sizes = {name: batch.get(name) for name in ("words", "sentences", "images")}
    return [f"batch.{name}={'null' if size is None else max(1, size // workers)}" for name, size in sizes.items()]


def judge(found: dict[str, list[Trial]], workers: int, link: str | None = None) -> Proof:
    """Costs from the trials of every kind. Without communication no worker waits, so that a step in lockstep would take
    as long as its slowest worker. Workers that do not step together wait for no slowest worker."""
    step, without = _median(found["full"]), _median(found["communication"])
    free, alone = _median(found["input"]), _median(found["alone"])
    waiting, who, slowest = 0.0, "", ""
    if all(line.get("scope") != "worker" for trial in found["full"] for lines in trial.steps for line in lines):
        silent = np.hstack([_by_worker(trial) for trial in found["communication"]])
        slowest_steps, uneven = silent.max(0), compare_work(silent, silent.argmax(0))
        without = float(np.median(slowest_steps))
        waiting = float(np.median(slowest_steps - uneven.fair)) / step
        slowest = f": worker {uneven.slowest}" if uneven.steady else ""
        who = f"worker {uneven.slowest}" if uneven.steady else "the slowest worker, which varies,"
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
    verdict = judge_costs(costs, link is not None, max(0.0, scatter))
    bottleneck, text = verdict.cause, verdict.sentence()
    if scatter > max(WORTH, costs[name]):
        bottleneck, text = NOT_PROVEN, "Nothing is proven."
        sentence = (
            f"{figures}: steps were up to {scatter:.0%} longer with something left out, so the trials vary more than "
            "anything costs; repeat with more rounds and nothing else running on the machine"
        )
    elif costs[name] < WORTH:
        sentence = f"{figures}: nothing that was left out costs {WORTH:.0%} or more"
    else:
        sentence = f"{figures}: {said} costs {costs[name]:.0%}"
        if verdict.overlap:
            total = f"all costs add up to {sum(costs.values()):.0%} of a step"
            sentence += f"; {total}, so they overlap or the trials vary too much"
    if bottleneck == IMBALANCE:
        bottleneck += slowest
    measured = sum(len(trial.measured[0]) for trial in found["full"])
    return Proof(step, without, free, alone, costs, bottleneck, sentence, text, workers, measured, link)


def _by_worker(trial: Trial) -> Column:
    """Seconds of every step that all workers measured, [workers, steps]."""
    by_step = [{line["step"]: line["seconds"] for line in lines} for lines in trial.measured]
    common = sorted(set.intersection(*(set(steps) for steps in by_step)))
    return np.array([[steps[step] for step in common] for steps in by_step])


def _median(trials: list[Trial]) -> float:
    """The median step of all workers: those that step together take the same time."""
    return median(line["seconds"] for trial in trials for lines in trial.measured for line in lines)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"
