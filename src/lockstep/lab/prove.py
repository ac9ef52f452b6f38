"""Ablations of a run: short trainings of the same job on the same machine, each with one thing left out. The time that a
step gains is the cost of that thing."""

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.explain.ablation_proof import list_journal_costs
from lockstep.explain.measures.bottleneck import AVOIDABLE, IMBALANCE, NOT_PROVEN, find_bottleneck, judge_costs
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column
from lockstep.files import damaged, read_json, write_json
from lockstep.lab.emulated_network import EmulatedNetwork, check_can_emulate, parse_rate
from lockstep.lab.proof_decision import NAMES, Circumstances, Decision, decide
from lockstep.lab.trial import Trial, make_trial_settings, run_trial
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Line, read

COMPARED = ("full", "communication", "input")
"""The kinds of trials that are compared within each round."""
ORDERS = ((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 0, 2))
"""Their order in one round after another. In three rounds each kind takes every place once."""
ALONE_EVERY = 3
"""One worker alone is measured in every third round: it explains the step, but decides nothing."""


@dataclass(frozen=True)
class Proof:
    """Median seconds of the measured steps. Costs are shares of the step; the rest is computing."""

    step_seconds: float
    without_communication_seconds: float  # of the slowest worker
    free_input_seconds: float
    alone_seconds: float  # one worker with its share of the batch and nothing else on the machine
    costs: dict[str, float]  # network, input, imbalance: shares of the step, the mean of all rounds
    intervals: dict[str, tuple[float, float] | None]  # of the costs; None with one round
    bottleneck: str  # network, input, imbalance, imbalance: worker k, compute (a smaller cost is proven), or NOT_PROVEN
    sentence: str  # the measured times and the largest cost, or what a proof would need
    verdict: str  # what bounds a step, or that nothing is proven
    contradictions: list[str]  # between trials and journal
    needed: list[str]  # what a proof would need; empty when something is proven
    others_share: float | None  # of the cores, used by other programs during the trials
    workers: int
    rounds: int
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
    folder: Path, steps: int = 20, rounds: int = 6, link: str | None = None, say: Callable[[str], None] = print
) -> Proof:
    """Runs the compared trials in every round, so that other load on the machine affects them alike, and saves the proof in
    the run directory. With `link` every worker is an emulated host behind a link of that rate."""
    if not folder.exists():
        raise LockstepError(f"The folder {folder} does not exist.", "Name the folder of a run.", code=2)
    if link is not None:
        parse_rate(link)
        check_can_emulate()
    run = RunDirectory(folder)
    launch = read(run.journal).last_launch
    if launch is None or not run.config.exists():
        raise LockstepError(f"{folder} is not a run that has started.", "Name the folder of a run.", code=2)
    batch = _read_batch(run)
    kinds, settings = _list_kinds(batch, launch), _make_settings(batch, launch, steps)
    trials: dict[str, list[Trial]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory(prefix="lockstep-prove-") as temporary:
        for number in range(rounds):
            order = [COMPARED[place] for place in ORDERS[number % len(ORDERS)]]
            for name in [*order, *(["alone"] if number % ALONE_EVERY == 0 else [])]:
                kind = kinds[name]
                say(f"Round {number + 1} of {rounds}: {kind.description}")
                own = [*settings, *kind.settings]
                trials[name].append(_run_kind(kind, Path(temporary) / f"{name}-{number}", run.config, own, link))
        source = folder if (link is not None) == _has_several_hosts(folder) else trials["full"][-1].run
        journal = list_journal_costs(find_bottleneck(Record.open(source)))
    shares = [trial.others_share for name in COMPARED for trial in trials[name]]
    known = [share for share in shares if share is not None]
    others = fmean(known) if known else None
    proof = judge(trials, Circumstances(others, journal, _steps_together(trials)), launch["workers"], link)
    write_json(folder / "proof.json", proof.as_dict())
    return proof


def _read_batch(run: RunDirectory) -> dict[str, Any]:
    """Returns the batch budget that the run chose when it started."""
    batch = (read_json(run.choices) or {}).get("batch")
    if not isinstance(batch, dict):
        raise damaged(run.choices, "batch is missing or wrong")
    return batch


def _list_kinds(batch: dict[str, Any], launch: Line) -> dict[str, _Kind]:
    workers, servers = launch["workers"], launch.get("servers", 0)
    alone = [*divide_batch(batch, workers), "strategy.name=auto"]
    return {
        "full": _Kind("the job as it is", [], workers, servers),
        "communication": _Kind("without communication", [], workers, servers, "communication"),
        "input": _Kind("with free input", [], workers, servers, "input"),
        "alone": _Kind("one worker alone (in every third round)", alone, 1, 0),
    }


def _has_several_hosts(folder: Path) -> bool:
    return len(set(Record.open(folder).hosts)) > 1


def _steps_together(trials: Mapping[str, Sequence[Trial]]) -> bool:
    """Whether all workers wait for the slowest one in every step."""
    return all(line.get("scope") != "worker" for trial in trials["full"] for lines in trial.steps for line in lines)


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


def judge(trials: Mapping[str, Sequence[Trial]], known: Circumstances, workers: int, link: str | None = None) -> Proof:
    """Decides what the trials prove, and writes it for people."""
    words = fmean(_count_words(trial) for trial in trials["full"])
    rounds = [
        {name: _stack_seconds(trials[name][number], words) for name in COMPARED}
        for number in range(len(trials["full"]))
    ]
    decision = decide(rounds, known)
    medians = {
        name: median(float(np.median(one[name].max(0) if known.lockstep else one[name])) for one in rounds)
        for name in COMPARED
    }
    alone = float(np.median(np.hstack([_stack_seconds(trial) for trial in trials["alone"]])))
    times = (
        f"step {_ms(medians['full'])}; without communication {_ms(medians['communication'])}; with free input "
        f"{_ms(medians['input'])}; one worker alone {_ms(alone)}"
    )
    proven = {part: decision.costs[part].value if part in decision.proven else 0.0 for part in AVOIDABLE}
    verdict = judge_costs(proven, link is not None)
    bottleneck = verdict.cause if decision.proven else NOT_PROVEN
    if bottleneck == IMBALANCE and decision.slowest is not None:
        bottleneck += f": worker {decision.slowest}"
    return Proof(
        step_seconds=medians["full"],
        without_communication_seconds=medians["communication"],
        free_input_seconds=medians["input"],
        alone_seconds=alone,
        costs={cause: cost.value for cause, cost in decision.costs.items()},
        intervals={
            cause: (cost.low, cost.high) if math.isfinite(cost.low) else None for cause, cost in decision.costs.items()
        },
        bottleneck=bottleneck,
        sentence=f"{times}: {_describe(decision)}",
        verdict=verdict.sentence() if decision.proven else "Nothing is proven.",
        contradictions=[one.sentence for one in decision.contradictions],
        needed=decision.needed,
        others_share=known.others_share,
        workers=workers,
        rounds=len(rounds),
        steps=sum(one["full"].shape[1] for one in rounds),
        link=link,
    )


def _describe(decision: Decision) -> str:
    """Returns the proven costs, or what a proof would need."""
    if not decision.proven:
        return " ".join(decision.needed).rstrip(".")
    slowest = NAMES[IMBALANCE] if decision.slowest is None else f"waiting for worker {decision.slowest}"
    names = NAMES | {IMBALANCE: slowest}
    text = "; ".join(decision.costs[cause].describe(names[cause]) for cause in decision.proven)
    total = sum(decision.costs[cause].value for cause in decision.proven)
    return text if total <= 1 else f"{text}; together more than a step, so these costs overlap"


def _count_words(trial: Trial) -> float:
    """Returns the mean of the measured steps of worker 0."""
    return fmean(line["words"]["target"] for line in trial.measured[0])


def _stack_seconds(trial: Trial, words: float | None = None) -> Column:
    """Returns the seconds of every step that all workers measured, [workers, steps]. With `words` they are scaled to steps
    of so many words: free input repeats a few batches, which may be larger or smaller than others."""
    by_step = [{line["step"]: line["seconds"] for line in lines} for lines in trial.measured]
    common = sorted(set.intersection(*(set(steps) for steps in by_step)))
    seconds = np.array([[steps[step] for step in common] for steps in by_step])
    return seconds if words is None else seconds * words / _count_words(trial)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"
