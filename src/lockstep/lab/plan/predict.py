"""The whole plan: every setting predicted, with an interval, and what to choose."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from lockstep.errors import LockstepError
from lockstep.explain.formatting import number
from lockstep.lab.plan.cluster import SCALED_ERROR, Cluster
from lockstep.lab.plan.costs import Pipe
from lockstep.lab.plan.job import Choice, PlannedJob
from lockstep.lab.plan.step_model import Forecast, forecast

MODEL_ERROR = 0.10
"""How far the formulas themselves may be off; docs/understand/results.md keeps the record of how far they were."""
ENOUGH, WORTH = 0.85, 1.1
"""An efficiency that leaves little to gain, and a gain that is worth naming."""
MOST_WORKERS = 100_000
USUAL = (
    Choice("allreduce"),
    Choice("allreduce", "bf16"),
    Choice("allreduce", "bf16", accumulate=4),
    Choice("sharded"),
    Choice("server"),
    Choice("local", every=50),
    Choice("replicas"),
)
"""What is compared when nothing is asked for."""


@dataclass(frozen=True)
class PlanRow:
    """One setting. Seconds are of a step; the interval should hold nine of ten measurements."""

    name: str
    strategy: str
    gradients: str
    accumulate: int
    every: int | None
    servers: int
    mode: str
    link: str
    link_bytes_per_second: float
    workers: int
    step_seconds: float
    low: float
    high: float
    computing: float
    exposed: float
    overlapped: float
    waiting: float
    bytes_sent: float
    words: float
    words_per_second: float
    speedup: float
    efficiency: float
    seconds: float | None  # to the steps that were asked for
    dollars: float | None


@dataclass(frozen=True)
class Plan:
    """What was asked, what is predicted, and what to choose."""

    cluster: str
    device: str
    parameters: int
    steps: int | None
    unit: str
    rows: list[PlanRow]
    recommendations: list[str]
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {"lockstep": "plan"} | asdict(self)


def errors(job: PlannedJob, cluster: Cluster, pipe: Pipe) -> tuple[float, float, float]:
    """Shares by which computing, the link and the model may be off."""
    known = SCALED_ERROR if cluster.device is not None else max(0.03, 1.64 * job.profile.error)
    return known, pipe.error, MODEL_ERROR


def make(
    job: PlannedJob,
    cluster: Cluster,
    workers: Sequence[int],
    choices: Sequence[Choice] = (),
    links: Sequence[Pipe] = (),
    steps: int | None = None,
) -> Plan:
    if not workers or min(workers) < 1 or max(workers) > MOST_WORKERS:
        raise LockstepError("There is no plan for so many workers.", f"Ask for 1 to {MOST_WORKERS:,}.", code=2)
    batch_norm = bool(job.profile.sums)
    if batch_norm and any(choice.accumulate > 1 for choice in choices):
        raise LockstepError("Batch norm takes no micro-batches: nothing can be accumulated.", "Leave it out.", code=2)
    choices = choices or [choice for choice in USUAL if choice.accumulate == 1 or not batch_norm]
    counts, rows = np.array(sorted(set(workers)), np.float64), list[PlanRow]()
    for pipe in links or [cluster.wiring.between]:
        known = errors(job, cluster, pipe)
        alone = forecast(job, Choice("replicas"), cluster.wiring, np.ones(1), known).words_per_second[0]
        for choice in choices:
            found = forecast(job, choice, cluster.linked(pipe).wiring, counts, known)
            rows += _rows(found, choice, pipe, float(alone), steps, cluster.dollars)
    device = cluster.device.name if cluster.device else job.profile.device
    said = [one for pipe in links or [cluster.wiring.between] for one in recommend(rows, pipe.name, int(counts[-1]))]
    notes = _notes(job, cluster, int(counts[-1]))
    return Plan(cluster.name, device, job.profile.parameters, steps, job.profile.unit, rows, said, notes)


_COLUMNS = ("low", "high", "computing", "exposed", "overlapped", "waiting", "bytes_sent", "words")
_SETTING = ("name", "strategy", "gradients", "accumulate", "servers", "mode")


def _rows(
    found: Forecast, choice: Choice, pipe: Pipe, alone: float, steps: int | None, dollars: float | None
) -> list[PlanRow]:
    rows = []
    columns = {name: getattr(found, name).tolist() for name in _COLUMNS}
    setting: dict[str, Any] = {name: getattr(choice, name) for name in _SETTING}
    for i, count in enumerate(found.workers.astype(int).tolist()):
        step, rate = float(found.step[i]), float(found.words_per_second[i])
        seconds = None if steps is None else steps * step
        hourly = None if dollars is None else dollars * (count + choice.servers)
        facts: dict[str, Any] = {name: values[i] for name, values in columns.items()}
        rows.append(
            PlanRow(
                **setting,
                **facts,
                every=choice.every if choice.strategy == "local" else None,
                link=pipe.name,
                link_bytes_per_second=pipe.bytes_per_second,
                workers=count,
                step_seconds=step,
                words_per_second=rate,
                speedup=rate / alone,
                efficiency=rate / alone / count,
                seconds=seconds,
                dollars=None if seconds is None or hourly is None else hourly * seconds / 3600,
            )
        )
    return rows


def _notes(job: PlannedJob, cluster: Cluster, workers: int) -> list[str]:
    notes = []
    if workers > cluster.workers:
        notes.append(
            f"{cluster.name} has room for {cluster.workers:,} workers; more machines of its kind are assumed beyond."
        )
    if cluster.device is not None:
        share = cluster.device.achieved[job.profile.precision]
        notes.append(
            f"No {cluster.device.name} was measured: {share:.0%} of its peak in {job.profile.precision} is assumed, "
            f"which may be off by {SCALED_ERROR:.0%}."
        )
        if cluster.device.dated and cluster.dollars is not None:
            notes.append(f"Prices are list prices of {cluster.device.dated} or near them: look them up.")
    if job.per_worker:
        notes.append(f"The batch is a worker's own: with more workers a step holds more {job.profile.unit}.")
    return notes


def recommend(rows: Sequence[PlanRow], link: str, workers: int) -> list[str]:
    """What to choose on a link, and what that changes for learning."""
    here = [row for row in rows if row.link == link and row.workers == workers and row.strategy != "replicas"]
    plain = next((row for row in here if row.name == "allreduce fp32"), None)
    if workers < 2 or plain is None:
        return []
    where = f"On {link} with {workers:,} workers"
    if plain.efficiency >= ENOUGH:
        return [f"{where}: plain allreduce is enough, predicted {_times(plain)}; little is left to gain."]
    said = []
    for kind, change in _KINDS.items():
        fitting = [row for row in here if _kind(row) == kind]
        best = max(fitting, key=lambda row: row.speedup, default=None)
        if best is not None and best.speedup >= WORTH * plain.speedup:
            said.append(f"{best.name} {_times(best)}{f' ({change})' if change else ''}")
    if not said:
        return [f"{where}: nothing here is much faster than plain allreduce, predicted {_times(plain)}."]
    return [f"{where}, instead of {_times(plain)} with plain allreduce: {'; or '.join(said)}."]


def _kind(row: PlanRow) -> str:
    if row.strategy == "local":
        return "local"
    if row.accumulate > 1:
        return "accumulation"
    return "same" if row.mode == "sync" else "async"


_KINDS = {
    "same": "",
    "accumulation": "a step holds that many times as much: fewer and larger updates for the same data, which may need "
    "another learning rate",
    "local": "workers drift apart between meetings: check the score, above all with many workers",
    "async": "gradients are taken at parameters that others have changed meanwhile",
}


def _times(row: PlanRow) -> str:
    factor = row.step_seconds
    return f"{number(row.speedup)}x ({number(row.speedup * factor / row.high)} to {number(row.speedup * factor / row.low)})"
