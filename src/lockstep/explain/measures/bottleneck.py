"""What a step is made of and what could be gained, from the journals alone.

Workers in lockstep end a step together. The worker that waited least was the slowest one. Its waiting is the exchange
itself, and its computing beyond that of the others is imbalance. So the seconds of the slowest worker divide into equal
work, imbalance, input and exchange, and these four parts add up to the step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from lockstep.explain.formatting import plural, share
from lockstep.explain.measures.disturbance import measure_disturbance
from lockstep.explain.reading.measured_steps import MeasuredSteps
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column

NETWORK, INPUT, IMBALANCE, COMPUTE = "network", "input", "imbalance", "compute"
AVOIDABLE = (NETWORK, INPUT, IMBALANCE)
NOT_PROVEN = "not proven"
"""The result of `lockstep prove` when its trials prove no cost."""
WORTH = 0.10
"""The largest avoidable cost is reported as such from this share of a step on."""
DOMINANT = 0.25
"""An avoidable cost is called the bottleneck from this share of a step on. The largest of the four parts of a step always
reaches it."""
ACTIVITIES = {
    NETWORK: "exchanging gradients",
    INPUT: "waiting for the next batch",
    IMBALANCE: "waiting for the slowest worker",
}


class AvoidableCost(TypedDict):
    cause: str
    cost: float
    noise: float | None


class BottleneckFacts(TypedDict):
    """The bottleneck in the JSON of a report."""

    cause: str
    cost: float
    costs: dict[str, float]
    bound_by: str
    largest_avoidable: AvoidableCost
    is_bottleneck: bool
    step_seconds: float
    slowest_worker: int | None
    sums: float
    measured: str
    sentence: str


@dataclass(frozen=True)
class Verdict:
    """What a step is bound by, its largest avoidable cost, and whether that cost deserves the word bottleneck."""

    costs: Mapping[str, float]  # share of the step by part; the four add up to 1 unless an ablation counts time twice
    noise: Mapping[str, float] = field(default_factory=dict)  # two standard errors of each share
    exchange: str = "the network"
    activities: Mapping[str, str] = field(default_factory=dict)  # replaces entries of ACTIVITIES

    @property
    def bound_by(self) -> str:
        """The largest part of the step."""
        return max((COMPUTE, *AVOIDABLE), key=lambda part: self.costs[part])

    @property
    def avoidable(self) -> str:
        """The avoidable part that costs most."""
        return max(AVOIDABLE, key=lambda part: self.costs[part])

    @property
    def cost(self) -> float:
        """The largest avoidable cost, as a share of the step."""
        return self.costs[self.avoidable]

    def is_certain(self, part: str) -> bool:
        """Whether the steps agree that this part costs anything."""
        return self.costs[part] > self.noise.get(part, 0.0)

    @property
    def is_bottleneck(self) -> bool:
        return self.cost >= DOMINANT and self.is_certain(self.avoidable)

    @property
    def cause(self) -> str:
        """The bottleneck, or `compute` where nothing avoidable deserves that name."""
        return self.avoidable if self.is_bottleneck else COMPUTE

    @property
    def overlap(self) -> bool:
        """Whether the parts add up to more than a step, so that the share of computing is not known."""
        return sum(self.costs.values()) > 1.001

    def activity(self, part: str) -> str:
        """Returns what workers do in an avoidable part."""
        return self.activities.get(part, ACTIVITIES[part])

    def label(self, part: str) -> str:
        """Returns a short name of a part for tables and charts."""
        return self.exchange.split()[1] if part == NETWORK else part

    def sentence(self) -> str:
        """Returns the verdict in one sentence for people."""
        computing, percent, activity = share(self.costs[COMPUTE]), share(self.cost), self.activity(self.avoidable)
        if self.is_bottleneck:
            name = {NETWORK: self.exchange, INPUT: "the input", IMBALANCE: "imbalance"}[self.avoidable]
            text = f"The bottleneck is {name}: {percent} of a step goes to {activity}"
            if self.overlap:
                return f"{text}."
            others = [part for part in AVOIDABLE if part != self.avoidable and self.costs[part] >= WORTH]
            rest = "".join(f", {share(self.costs[part])} to {self.activity(part)}" for part in others)
            return f"{text}, {computing} to computing{rest}."
        if self.avoidable == NETWORK:
            activity += _WHERE.get(self.exchange, "")
        bound = "Compute-bound" if self.costs[COMPUTE] >= 0.5 else "No clear bottleneck"
        bound = f"{bound}: {computing} of a step is computing"
        if not self.is_certain(self.avoidable):
            unclear = f"{percent} goes to {activity} on average, which varies too much between steps to be certain"
            noise = share(self.noise.get(self.avoidable, 0.0))
            return f"{bound}; {unclear} (± {noise})." if self.cost >= WORTH else f"{bound}."
        if self.cost >= WORTH:
            return f"{bound}. The largest avoidable cost is {activity} ({percent})."
        return f"{bound}; {activity} is next with {percent}."


_WHERE = {"the network": " over the network", "the exchange between processes": " between processes"}


@dataclass(frozen=True)
class Bottleneck:
    """Mean seconds of a step by part; the four parts add up to `step`."""

    step: float
    compute: float
    imbalance: float
    input: float
    network: float
    slowest: int | None  # the worker that computes longest, when there are several
    slowest_share: float  # of the steps in which it was the slowest
    steady: bool  # the slowest worker is usually the same one
    lockstep: bool
    workers: int
    measured: str  # how it was measured, for people
    sums: float = 0.0  # of `network`: synchronizing batch norm
    hosts: int = 0  # 0 where it is not known
    noise: Mapping[str, float] = field(default_factory=dict)  # two standard errors of each avoidable part, in seconds
    disturbed: bool = False  # other programs used the cores, which may be why a worker was slow

    @property
    def blames_worker(self) -> bool:
        """Whether one worker is the reason for the imbalance."""
        return self.steady and not self.disturbed

    def cost(self, cause: str) -> float:
        """Returns a part as a share of the step."""
        return float(getattr(self, cause)) / self.step if self.step else 0.0

    @property
    def verdict(self) -> Verdict:
        """What all texts about this step derive from."""
        noise = {part: seconds / self.step if self.step else 0.0 for part, seconds in self.noise.items()}
        activities = {}
        if self.mixes_waiting:
            activities[NETWORK] = "exchanging updates and waiting for other workers"
        elif self.sums > self.network / 2:
            activities[NETWORK] = "synchronizing batch norm and exchanging gradients"
        if self.blames_worker:
            activities[IMBALANCE] = f"waiting for worker {self.slowest}"
        costs = {part: self.cost(part) for part in (COMPUTE, *AVOIDABLE)}
        return Verdict(costs, noise, self.exchange, activities)

    @property
    def mixes_waiting(self) -> bool:
        """Whether `network` may contain waiting for slower workers: several workers that do not step together."""
        return not self.lockstep and self.workers > 1

    @property
    def exchange(self) -> str:
        """The name of the exchange: `the network` only where workers are known to run on several hosts."""
        if self.mixes_waiting:
            return "the exchange with other workers"
        if self.hosts > 1:
            return "the network"
        return "the exchange between processes" if self.hosts == 1 else "the exchange"

    @property
    def cause(self) -> str:
        return self.verdict.cause

    @property
    def name(self) -> str:
        return self._name_cause(self.cause)

    def _name_cause(self, cause: str) -> str:
        return f"imbalance: worker {self.slowest}" if cause == IMBALANCE and self.blames_worker else cause

    def sentence(self) -> str:
        verdict = self.verdict
        text = verdict.sentence()
        if self.lockstep and verdict.avoidable == IMBALANCE and verdict.cost >= WORTH:
            often = f"Worker {self.slowest} is the slowest in {share(self.slowest_share)} of the steps"
            often += ", which may be due to other programs." if self.disturbed else "."
            text += f" {often if self.steady else 'The slowest worker varies.'}"
        return text

    def facts(self) -> BottleneckFacts:
        verdict = self.verdict
        largest: AvoidableCost = {
            "cause": self._name_cause(verdict.avoidable),
            "cost": verdict.cost,
            "noise": verdict.noise.get(verdict.avoidable),
        }
        return {
            "cause": self.name,
            "cost": self.cost(self.cause),
            "costs": {cause: self.cost(cause) for cause in (*AVOIDABLE, COMPUTE)},
            "bound_by": verdict.bound_by,
            "largest_avoidable": largest,
            "is_bottleneck": verdict.is_bottleneck,
            "step_seconds": self.step,
            "slowest_worker": self.slowest,
            "sums": self.cost("sums"),
            "measured": self.measured,
            "sentence": self.sentence(),
        }


def judge_costs(costs: Mapping[str, float], linked: bool, noise: float = 0.0) -> Verdict:
    """Returns the verdict on costs that an ablation measured: between emulated hosts where `linked`, otherwise on one
    machine."""
    rest = max(0.0, 1.0 - sum(costs[part] for part in AVOIDABLE))
    exchange = "the network" if linked else "the exchange between processes"
    return Verdict({**costs, COMPUTE: rest}, dict.fromkeys(AVOIDABLE, noise), exchange)


def count_hosts(record: Record) -> int:
    """Returns the number of machines that took part, or 0 where it is not known. A run does not record where its parameter
    servers ran."""
    hosts = len(set(record.hosts))
    return 0 if hosts == 1 and record.last_launch.servers else hosts


def find_bottleneck(record: Record) -> Bottleneck | None:
    """Returns None when no step was measured."""
    measured, hosts = record.measured, count_hosts(record)
    if not measured.count:
        return None
    steps_together = measured.lockstep and len(measured.workers) > 1 and len(next(iter(measured.aligned.values()))) > 0
    bottleneck = _follow_slowest(measured, hosts) if steps_together else _average_workers(measured, hosts)
    return replace(bottleneck, disturbed=measure_disturbance(record).is_disturbed)


def estimate_noise(seconds: Column) -> float:
    """Returns two standard errors of the mean of these steps. One step alone proves nothing, so its noise is its value."""
    return 2 * float(seconds.std(ddof=1)) / len(seconds) ** 0.5 if len(seconds) > 1 else float(seconds.sum())


def _average_workers(measured: MeasuredSteps, hosts: int) -> Bottleneck:
    """Averages over workers that do not step together, or over one worker."""
    workers = [steps for steps in measured.workers.values() if len(steps)]
    names = ("seconds", "compute", "input", "merge", "sums")
    means = {name: float(np.mean([getattr(steps, name).mean() for steps in workers])) for name in names}
    who = "worker 0" if len(workers) == 1 else f"mean of {plural(len(workers), 'worker')}"
    slowest = None
    sends_nothing = len(workers) > 1 and not any(np.nan_to_num(steps.bytes_sent).any() for steps in workers)
    if len(workers) > 1:
        speeds = {rank: float(steps.compute.mean()) for rank, steps in measured.workers.items() if len(steps)}
        slowest = max(speeds, key=lambda rank: speeds[rank])
    waiting, input_noise = (
        sum(estimate_noise(getattr(steps, name)) ** 2 for steps in workers) ** 0.5 / len(workers)
        for name in ("merge", "input")
    )
    return Bottleneck(
        step=means["seconds"],
        compute=means["compute"],
        imbalance=means["merge"] if sends_nothing else 0.0,  # a worker that sends nothing can only wait for others
        input=means["input"],
        network=0.0 if sends_nothing else means["merge"],
        slowest=slowest,
        slowest_share=0.0,
        steady=False,
        lockstep=False,
        workers=len(workers),
        measured=measured.describe("mean", who),
        sums=means["sums"],
        hosts=hosts,
        noise={IMBALANCE if sends_nothing else NETWORK: waiting, INPUT: input_noise},
    )


def _follow_slowest(measured: MeasuredSteps, hosts: int) -> Bottleneck:
    """Divides the step of the worker that waited least, for workers that step together."""
    compute, waiting, late_input = (measured.stack(name) for name in ("compute", "merge", "input"))  # [workers, steps]
    ranks = list(measured.aligned)
    last = waiting.argmin(0)  # the worker that waited least, [steps]
    here = np.arange(waiting.shape[1])
    comparison = compare_work(compute, last)
    seconds = {
        COMPUTE: comparison.fair,
        IMBALANCE: compute[last, here] - comparison.fair,
        INPUT: late_input[last, here],
        NETWORK: waiting[last, here],
    }
    parts = {name: float(column.mean()) for name, column in seconds.items()}
    if parts["imbalance"] < 0:  # noise: the slowest worker did not compute more than the others
        parts["compute"], parts["imbalance"] = parts["compute"] + parts["imbalance"], 0.0
    how = measured.describe("mean", f"journals of {len(ranks)} workers")
    return Bottleneck(
        step=sum(parts.values()),
        slowest=ranks[comparison.slowest],
        slowest_share=float((last == comparison.slowest).mean()),
        steady=comparison.steady,
        lockstep=True,
        workers=len(ranks),
        measured=f"{how}; the worker that waited least in each step",
        sums=float(measured.stack("sums")[last, here].mean()),
        hosts=hosts,
        noise={name: estimate_noise(seconds[name]) for name in AVOIDABLE},
        compute=parts[COMPUTE],
        imbalance=parts[IMBALANCE],
        input=parts[INPUT],
        network=parts[NETWORK],
    )


@dataclass(frozen=True)
class WorkComparison:
    slowest: int  # row of the worker that computes longest on average
    steady: bool  # the slowest worker is usually the same one
    fair: Column  # seconds of each step if all workers were equally fast, or their work equal


def compare_work(work: Column, last: npt.NDArray[np.intp]) -> WorkComparison:
    """Compares the seconds of work [workers, steps] with those of the slowest worker of each step, `last` [steps]. A worker
    that is usually the slowest is compared with the others. Where the slowest worker varies, it is compared with the mean
    of all: the work could have been divided better."""
    fair = work.mean(0)
    late = float((work[last, np.arange(work.shape[1])] - fair).mean())
    excess = work.mean(1) - fair.mean()
    slowest = int(excess.argmax())
    steady = bool(excess[slowest] > 0.5 * late > 0)
    return WorkComparison(slowest, steady, np.delete(work, slowest, 0).mean(0) if steady else fair)
