"""What holds a step back, from the journals alone.

Workers in lockstep end a step together. Whoever waited least came last: what even this worker waited is the exchange
itself, and how much more it computed than it had to is what unequal work or unequal machines cost. So the seconds of the
last worker divide without rest into equal work, imbalance, input and network.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lockstep.explain.formatting import milliseconds, plural, share
from lockstep.explain.reading.measured_steps import MeasuredSteps
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column

NETWORK, INPUT, IMBALANCE, COMPUTE = "network", "input", "imbalance", "compute"
NOT_PROVEN = "not proven"
"""What `lockstep prove` found when its trials contradict each other."""
WORTH = 0.10
"""What costs at least this share of a step is called its bottleneck; below, the step is bound by computing."""


@dataclass(frozen=True)
class Bottleneck:
    """Mean seconds of a step by cause; the four add up to `step`."""

    step: float
    compute: float
    imbalance: float
    input: float
    network: float
    slowest: int | None  # the worker with the most computing of its own, when there are several
    slowest_share: float  # of the steps in which it came last
    steady: bool  # it is always the same one, rather than now this and now that
    lockstep: bool
    workers: int
    how: str
    sums: float = 0.0  # of `network`: the small sums of batch norm

    def cost(self, cause: str) -> float:
        """As a share of the step."""
        return float(getattr(self, cause)) / self.step if self.step else 0.0

    @property
    def cause(self) -> str:
        worst = max((NETWORK, INPUT, IMBALANCE), key=self.cost)
        return worst if self.cost(worst) >= WORTH else COMPUTE

    @property
    def name(self) -> str:
        return f"imbalance: worker {self.slowest}" if self.cause == IMBALANCE else self.cause

    def sentence(self) -> str:
        percent = share(self.cost(self.cause))
        if self.cause == COMPUTE:
            rest = {name: self.cost(name) for name in (NETWORK, INPUT, IMBALANCE)}
            largest = max(rest, key=lambda name: rest[name])
            return f"The bottleneck is compute: {percent} of a step; {largest} is next with {share(rest[largest])}."
        if self.cause == IMBALANCE:
            often = f"worker {self.slowest} most often, in {share(self.slowest_share)} of the steps"
            who = f"worker {self.slowest} keeps the others waiting (always the same one)"
            if not self.lockstep:
                who = "workers that exchange nothing wait for the slowest of them"
            elif not self.steady:
                who = f"now this and now that worker keeps the others waiting ({often})"
            return f"The bottleneck is imbalance: {who}, which costs {percent} of a step."
        waits = {NETWORK: "exchanging gradients costs", INPUT: "waiting for the next batch costs"}[self.cause]
        if self.cause == NETWORK and self.sums > self.network / 2:
            waits = "the sums of batch norm, at which all workers wait for each other, and the gradients cost"
        return f"The bottleneck is the {self.cause}: {waits} {percent} of a step."

    def facts(self) -> dict[str, object]:
        costs = {cause: self.cost(cause) for cause in (NETWORK, INPUT, IMBALANCE, COMPUTE)}
        return {"cause": self.name, "cost": self.cost(self.cause), "costs": costs, "step_seconds": self.step} | {
            "slowest_worker": self.slowest,
            "sums": self.cost("sums"),
            "measured": self.how,
            "sentence": self.sentence(),
        }


def find(record: Record) -> Bottleneck | None:
    """None when no step was measured."""
    measured = record.measured
    if not measured.count:
        return None
    if not measured.lockstep or len(measured.workers) == 1:
        return _alone(measured)
    return _together(measured) if len(next(iter(measured.aligned.values()))) else _alone(measured)


def _alone(measured: MeasuredSteps) -> Bottleneck:
    """Workers that step on their own, or only one: every second is its own, and nobody waits for a slower one."""
    rows = [steps for steps in measured.workers.values() if len(steps)]
    names = ("seconds", "compute", "input", "merge", "sums")
    means = {name: float(np.mean([getattr(steps, name).mean() for steps in rows])) for name in names}
    who = "worker 0" if len(rows) == 1 else f"mean of {plural(len(rows), 'worker')}"
    slowest, alone = None, len(rows) > 1 and not any(np.nan_to_num(steps.bytes_sent).any() for steps in rows)
    if len(rows) > 1:
        speeds = {rank: float(steps.compute.mean()) for rank, steps in measured.workers.items() if len(steps)}
        slowest = max(speeds, key=lambda rank: speeds[rank])
    return Bottleneck(
        step=means["seconds"],
        compute=means["compute"],
        imbalance=means["merge"] if alone else 0.0,  # who sends nothing can only wait for others
        input=means["input"],
        network=0.0 if alone else means["merge"],
        slowest=slowest,
        slowest_share=0.0,
        steady=False,
        lockstep=False,
        workers=len(rows),
        how=measured.how("mean", who),
        sums=means["sums"],
    )


def _together(measured: MeasuredSteps) -> Bottleneck:
    compute, waiting, given = measured.stack("compute"), measured.stack("merge"), measured.stack("input")
    ranks = list(measured.aligned)
    last = waiting.argmin(0)  # [steps]: the worker that waited least
    here = np.arange(waiting.shape[1])
    uneven = unequal(compute, last)
    parts = {
        "compute": float(uneven.fair.mean()),
        "imbalance": float((compute[last, here] - uneven.fair).mean()),
        "input": float(given[last, here].mean()),
        "network": float(waiting[last, here].mean()),
    }
    if parts["imbalance"] < 0:  # noise: the last one did not compute more
        parts["compute"], parts["imbalance"] = parts["compute"] + parts["imbalance"], 0.0
    return Bottleneck(
        step=sum(parts.values()),
        slowest=ranks[uneven.slowest],
        slowest_share=float((last == uneven.slowest).mean()),
        steady=uneven.steady,
        lockstep=True,
        workers=len(ranks),
        how=f"{measured.how('mean', f'journals of {len(ranks)} workers')}; the worker that waited least in each step",
        sums=float(measured.stack("sums")[last, here].mean()),
        **parts,
    )


@dataclass(frozen=True)
class Unequal:
    slowest: int  # row of the worker that has the most to do in the mean
    steady: bool  # it is always the same one, rather than now this and now that
    fair: Column  # seconds that each step would take: all as fast as the others, or the same work dealt out evenly


def unequal(work: Column, last: npt.NDArray[np.intp]) -> Unequal:
    """From the seconds of work [workers, steps], and who was last in each step. A worker that is always late is compared
    with the others; where it is now this and now that one, the work could have been dealt out better."""
    fair = work.mean(0)
    late = float((work[last, np.arange(work.shape[1])] - fair).mean())
    excess = work.mean(1) - fair.mean()
    slowest = int(excess.argmax())
    steady = bool(excess[slowest] > 0.5 * late > 0)
    return Unequal(slowest, steady, np.delete(work, slowest, 0).mean(0) if steady else fair)


def describe(found: Bottleneck) -> str:
    """The whole step in one sentence."""
    parts = ", ".join(
        f"{name} {milliseconds(getattr(found, name))} ({share(found.cost(name))})"
        for name in (COMPUTE, IMBALANCE, INPUT, NETWORK)
    )
    return f"A step of {milliseconds(found.step)} is {parts}."
