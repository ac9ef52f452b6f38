"""Makes a plan: a prediction with an interval for every setting, and recommendations."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.explain.formatting import number
from lockstep.explain.reading.steps import Column
from lockstep.lab.plan.cluster import SCALED_ERROR, Cluster
from lockstep.lab.plan.costs import LinkModel
from lockstep.lab.plan.device_limits import KERNELS, LAUNCH_SECONDS
from lockstep.lab.plan.planned_job import Choice, PlannedJob
from lockstep.lab.plan.step_model import Errors, Forecast, forecast

MODEL_ERROR = 0.10
"""Relative error of the formulas; docs/understand/results.md compares predictions with measurements."""
ENOUGH, WORTH = 0.85, 1.1
"""An efficiency that leaves little to gain, and a gain over plain allreduce that is worth a recommendation."""
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
"""The choices of a plan without --strategies."""


@dataclass(frozen=True)
class PlanRow:
    """The prediction for one setting. Times are seconds of a step; the interval should contain nine of ten measurements."""

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
    seconds: float | None  # of all steps of the plan
    dollars: float | None  # of all steps of the plan


@dataclass(frozen=True)
class Plan:
    """Predictions for a job on a cluster, and recommendations."""

    cluster: str
    device: str
    parameters: int
    steps: int | None
    unit: str
    rows: list[PlanRow]
    recommendations: list[str]
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, JsonValue]:
        return {"lockstep": "plan", **asdict(self)}


def estimate_errors(job: PlannedJob, cluster: Cluster, link: LinkModel, workers: Column) -> Errors:
    """Returns the relative errors of computing, of the link and of the model."""
    error = job.profile.estimate_error(job.words_per_worker(workers))
    computing = np.maximum(SCALED_ERROR, error) if cluster.device is not None else np.maximum(0.03, 1.64 * error)
    return computing, link.error, MODEL_ERROR


def make_plan(
    job: PlannedJob,
    cluster: Cluster,
    workers: Sequence[int],
    choices: Sequence[Choice] = (),
    links: Sequence[LinkModel] = (),
    steps: int | None = None,
) -> Plan:
    """Predicts every combination of worker count, choice and link."""
    if not workers or min(workers) < 1 or max(workers) > MOST_WORKERS:
        raise LockstepError(
            "The number of workers is out of range.", f"Plan for 1 to {MOST_WORKERS:,} workers.", code=2
        )
    has_batch_norm = bool(job.profile.sums)
    if has_batch_norm and any(choice.accumulate > 1 for choice in choices):
        raise LockstepError(
            "A model with batch norm cannot accumulate gradients: it takes no micro-batches.",
            "Leave accumulate out.",
            code=2,
        )
    choices = choices or [choice for choice in USUAL if choice.accumulate == 1 or not has_batch_norm]
    links = links or [cluster.wiring.between]
    counts, rows = np.array(sorted(set(workers)), np.float64), list[PlanRow]()
    for link in links:
        errors = estimate_errors(job, cluster, link, counts)
        alone = forecast(job, Choice("replicas"), cluster.wiring, np.ones(1), errors).words_per_second[0]
        for choice in choices:
            predicted = forecast(job, choice, cluster.with_link(link).wiring, counts, errors)
            rows += _make_rows(predicted, choice, link, float(alone), steps, cluster.dollars)
    device = cluster.device.name if cluster.device else job.profile.device
    recommendations = [sentence for link in links for sentence in recommend(rows, link.name, int(counts[-1]))]
    notes = _make_notes(job, cluster, int(counts[-1]), has_prices=steps is not None)
    profile = job.profile
    return Plan(cluster.name, device, profile.parameters, steps, profile.unit, rows, recommendations, notes)


def _make_rows(
    predicted: Forecast, choice: Choice, link: LinkModel, alone: float, steps: int | None, dollars: float | None
) -> list[PlanRow]:
    """Returns a row for every worker count. `alone` is the speed of one worker, `dollars` the price of its hour."""
    rows = []
    for i, count in enumerate(predicted.workers.astype(int).tolist()):
        step, rate = float(predicted.step[i]), float(predicted.words_per_second[i])
        seconds = None if steps is None else steps * step
        hourly = None if dollars is None else dollars * (count + choice.servers)
        rows.append(
            PlanRow(
                name=choice.name,
                strategy=choice.strategy,
                gradients=choice.gradients,
                accumulate=choice.accumulate,
                every=choice.every if choice.strategy == "local" else None,
                servers=choice.servers,
                mode=choice.mode,
                link=link.name,
                link_bytes_per_second=link.bytes_per_second,
                workers=count,
                step_seconds=step,
                low=float(predicted.low[i]),
                high=float(predicted.high[i]),
                computing=float(predicted.computing[i]),
                exposed=float(predicted.exposed[i]),
                overlapped=float(predicted.overlapped[i]),
                waiting=float(predicted.waiting[i]),
                bytes_sent=float(predicted.bytes_sent[i]),
                words=float(predicted.words[i]),
                words_per_second=rate,
                speedup=rate / alone,
                efficiency=rate / alone / count,
                seconds=seconds,
                dollars=None if seconds is None or hourly is None else hourly * seconds / 3600,
            )
        )
    return rows


def _make_notes(job: PlannedJob, cluster: Cluster, workers: int, has_prices: bool) -> list[str]:
    notes = [f"The plan assumes train.precision={job.profile.precision}."]
    if workers > cluster.workers:
        notes.append(
            f"The cluster {cluster.name} has {cluster.workers:,} workers; for more, the plan adds machines of the same "
            "kind."
        )
    if cluster.device is not None:
        share = cluster.device.achieved[job.profile.precision]
        notes.append(
            f"No {cluster.device.name} was measured: the plan assumes that large products reach {share:.0%} of its peak in "
            f"{job.profile.precision}, which may be off by {SCALED_ERROR:.0%}."
        )
        notes.append(_describe_limits(job))
        if has_prices and cluster.device.dated and cluster.dollars is not None:
            notes.append(f"Prices are approximate list prices of {cluster.device.dated}: check them before you pay.")
    if job.per_worker:
        notes.append(f"Each worker has its own batch: with more workers a step has more {job.profile.unit}.")
    return notes


def _describe_limits(job: PlannedJob) -> str:
    """Returns which limits of a device the intervals of the plan contain."""
    tensors = len(job.profile.tensors)
    kernels = " to ".join(f"{tensors * count:,}" for count in KERNELS)
    each = " to ".join(f"{1e6 * seconds:.0f}" for seconds in LAUNCH_SECONDS)
    low, high = (1e3 * tensors * count * launch for count, launch in zip(KERNELS, LAUNCH_SECONDS, strict=True))
    return (
        f"A step launches about {kernels} kernels, {each} microseconds each: it takes at least {number(low)} to "
        f"{number(high)} ms, however small its batch. Products with small dimensions use less of the device; the intervals "
        "contain both."
    )


def recommend(rows: Sequence[PlanRow], link: str, workers: int) -> list[str]:
    """Returns what is faster than plain allreduce on a link, and how it affects learning."""
    candidates = [row for row in rows if row.link == link and row.workers == workers and row.strategy != "replicas"]
    plain = next((row for row in candidates if row.name == "allreduce fp32"), None)
    if workers < 2 or plain is None:
        return []
    where = f"On {link} with {workers:,} workers"
    best = max(candidates, key=lambda row: row.speedup)
    if best.speedup < 1:
        times = f"one worker alone is {number(1 / best.speedup)} times as fast as the best of these strategies"
        is_certain = best.speedup * best.step_seconds / best.low < 1
        advice = f"{'Do not' if is_certain else 'Probably do not'} use {workers:,} workers on {link}"
        return [f"{advice}: {times}, {best.name} {_format_speedup(best)}."]
    if plain.efficiency >= ENOUGH:
        return [f"{where}: plain allreduce is enough, with a predicted speed-up of {_format_speedup(plain)}."]
    options = []
    for kind, effect in _EFFECTS.items():
        of_kind = (row for row in candidates if _find_kind(row) == kind)
        fastest = max(of_kind, key=lambda row: row.speedup, default=None)
        if fastest is not None and fastest.speedup >= WORTH * plain.speedup:
            options.append(f"{fastest.name} {_format_speedup(fastest)}{f' ({effect})' if effect else ''}")
    if not options:
        return [f"{where}: nothing is much faster than plain allreduce, predicted {_format_speedup(plain)}."]
    slower = "" if plain.speedup >= 1 else ", which is slower than one worker alone"
    return [f"{where}, instead of {_format_speedup(plain)} with plain allreduce{slower}: {'; or '.join(options)}."]


def _find_kind(row: PlanRow) -> str:
    if row.strategy == "local":
        return "local"
    if row.accumulate > 1:
        return "accumulation"
    return "same" if row.mode == "sync" else "async"


_EFFECTS = {
    "same": "",
    "accumulation": "fewer and larger updates for the same data, which may need another learning rate",
    "local": "workers drift apart between synchronizations: check the score, above all with many workers",
    "async": "gradients are computed with parameters that other workers have changed in between",
}
"""How each kind of choice affects learning."""


def _format_speedup(row: PlanRow) -> str:
    low, high = row.speedup * row.step_seconds / row.high, row.speedup * row.step_seconds / row.low
    return f"{number(row.speedup)}x ({number(low)} to {number(high)})"
