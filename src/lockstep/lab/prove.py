"""Ablations of a run: short trainings of the same job on the same machine, each with one thing left out. The time that a
step gains is the cost of that thing."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.explain.measures.bottleneck import IMBALANCE, NOT_PROVEN, WORTH, compare_work, judge_costs
from lockstep.explain.reading.steps import Column
from lockstep.files import read_json, write_json
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.lab.trial import Trial, make_trial_settings, run_trial
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Line, read


@dataclass(frozen=True)
class Proof:
    """Median seconds of the measured steps. Costs are shares of the step; the rest is computing."""

    step_seconds: float
    without_communication_seconds: float  # of the slowest worker
    free_input_seconds: float
    alone_seconds: float  # one worker with its share of the batch and nothing else on the machine
    costs: dict[str, float]  # network, input, imbalance
    bottleneck: str  # network, input, imbalance, imbalance: worker k, compute, or NOT_PROVEN
    sentence: str  # the measured times and the largest cost
    verdict: str  # what bounds a step, or that nothing is proven
    workers: int
    steps: int  # measured steps of each kind of trial
    link: str | None

    def as_dict(self) -> dict[str, JsonValue]:
        return asdict(self)


class _Kind(NamedTuple):
    """A kind of trial: its description, and how it differs from the run."""

    description: str
    settings: list[str]
    workers: int
    servers: int
    without: str = "nothing"


def prove(
    folder: Path, steps: int = 30, rounds: int = 3, link: str | None = None, say: Callable[[str], None] = print
) -> Proof:
    """Runs all trials in every round, so that other load on the machine affects them alike, and saves the proof in the run
    directory. With `link` every worker is an emulated host behind a link of that rate."""
    run = RunDirectory(folder)
    launch = read(run.journal).last_launch
    if launch is None or not run.config.exists():
        raise LockstepError(f"{folder} is not a run that has started.", "Name the folder of a run.", code=2)
    workers, servers = launch["workers"], launch.get("servers", 0)
    choices = read_json(run.choices) or {}
    settings = _make_settings(choices["batch"], launch, steps)
    alone = [*divide_batch(choices["batch"], workers), "strategy.name=auto"]
    kinds = {
        "full": _Kind("the job as it is", [], workers, servers),
        "communication": _Kind("without communication", [], workers, servers, "communication"),
        "input": _Kind("with free input", [], workers, servers, "input"),
        "alone": _Kind("one worker alone", alone, 1, 0),
    }
    trials: dict[str, list[Trial]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory(prefix="lockstep-prove-") as temporary:
        for number in range(rounds):
            for name, kind in kinds.items():
                say(f"Round {number + 1} of {rounds}: {kind.description}")
                own = [*settings, *kind.settings]
                trials[name].append(_run_kind(kind, Path(temporary) / f"{name}-{number}", run.config, own, link))
    proof = judge(trials, workers, link)
    write_json(folder / "proof.json", proof.as_dict())
    return proof


def _run_kind(kind: _Kind, folder: Path, config: Path, settings: list[str], link: str | None) -> Trial:
    if link is None:
        return run_trial(folder, config, settings, kind.workers, kind.servers, kind.without)
    with EmulatedNetwork(kind.workers + kind.servers, link) as network:
        return run_trial(folder, config, settings, kind.workers, kind.servers, kind.without, network)


def _make_settings(batch: dict[str, JsonValue], launch: Line, steps: int) -> list[str]:
    """Returns the settings with which a trial computes as the run did."""
    batch_settings = [f"batch.{name}={json.dumps(value)}" for name, value in batch.items()]
    same = [f"train.threads={launch['threads']}", f"train.precision={launch['precision']}"]
    return [*batch_settings, *same, *make_trial_settings(steps)]


def divide_batch(batch: dict[str, int | None], workers: int) -> list[str]:
    """Returns the batch settings for the share of one of `workers` workers."""
    sizes = {name: batch.get(name) for name in ("words", "sentences", "images")}
    return [f"batch.{name}={'null' if size is None else max(1, size // workers)}" for name, size in sizes.items()]


def judge(trials: dict[str, list[Trial]], workers: int, link: str | None = None) -> Proof:
    """Computes the costs from the trials of every kind."""
    step, without = _median_step(trials["full"]), _median_step(trials["communication"])
    free, alone = _median_step(trials["input"]), _median_step(trials["alone"])
    imbalance = _measure_imbalance(trials)
    if imbalance is not None:
        without = imbalance.slowest_seconds
    costs = {
        "network": max(0.0, 1 - without / step),
        "input": max(0.0, 1 - free / step),
        "imbalance": max(0.0, imbalance.seconds / step) if imbalance is not None else 0.0,
    }
    largest = max(costs, key=lambda cost: costs[cost])
    times = (
        f"step {_ms(step)}; without communication {_ms(without)}; with free input {_ms(free)}; "
        f"one worker alone {_ms(alone)}"
    )
    noise = max(without, free) / step - 1  # leaving something out cannot make a step longer
    verdict = judge_costs(costs, link is not None, max(0.0, noise))
    bottleneck, text = verdict.cause, verdict.sentence()
    if noise > max(WORTH, costs[largest]):
        bottleneck, text = NOT_PROVEN, "Nothing is proven."
        sentence = (
            f"{times}: steps were up to {noise:.0%} longer with something left out, so the trials vary more than "
            "anything costs; repeat with more rounds and nothing else running on the machine"
        )
    elif costs[largest] < WORTH:
        sentence = f"{times}: nothing that was left out costs {WORTH:.0%} or more"
    else:
        slowest = imbalance.description if imbalance is not None else ""
        names = {"network": "communication", "input": "input", "imbalance": f"waiting for {slowest}"}
        sentence = f"{times}: {names[largest]} costs {costs[largest]:.0%}"
        if verdict.overlap:
            total = f"all costs add up to {sum(costs.values()):.0%} of a step"
            sentence += f"; {total}, so they overlap or the trials vary too much"
    if bottleneck == IMBALANCE and imbalance is not None and imbalance.worker is not None:
        bottleneck += f": worker {imbalance.worker}"
    measured = sum(len(trial.measured[0]) for trial in trials["full"])
    return Proof(step, without, free, alone, costs, bottleneck, sentence, text, workers, measured, link)


class _Imbalance(NamedTuple):
    """Median seconds of the slowest worker's step, and by how much they exceed a fair share."""

    slowest_seconds: float
    seconds: float
    worker: int | None  # the slowest worker; None if it varies

    @property
    def description(self) -> str:
        return "the slowest worker, which varies," if self.worker is None else f"worker {self.worker}"


def _measure_imbalance(trials: dict[str, list[Trial]]) -> _Imbalance | None:
    """Without communication no worker waits, so a step in lockstep would take as long as that of the slowest worker.
    Returns None if workers do not step together, because then no worker waits for the slowest."""
    if any(line.get("scope") == "worker" for trial in trials["full"] for lines in trial.steps for line in lines):
        return None
    seconds = np.hstack([_stack_seconds(trial) for trial in trials["communication"]])  # [workers, steps]
    slowest, uneven = seconds.max(0), compare_work(seconds, seconds.argmax(0))
    worker = uneven.slowest if uneven.steady else None
    return _Imbalance(float(np.median(slowest)), float(np.median(slowest - uneven.fair)), worker)


def _stack_seconds(trial: Trial) -> Column:
    """Returns the seconds of every step that all workers measured, [workers, steps]."""
    by_step = [{line["step"]: line["seconds"] for line in lines} for lines in trial.measured]
    common = sorted(set.intersection(*(set(steps) for steps in by_step)))
    return np.array([[steps[step] for step in common] for steps in by_step])


def _median_step(trials: list[Trial]) -> float:
    """Returns the median over all workers; workers that step together take the same time."""
    return median(line["seconds"] for trial in trials for lines in trial.measured for line in lines)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"
