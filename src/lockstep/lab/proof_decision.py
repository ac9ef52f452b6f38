"""Decides what the trials of `lockstep prove` prove: a pure function of their step times and of what else is known.

The steps of a trial are not independent: another program disturbs many of them alike. So the rounds are the sample. Every
round compares its own trials, and the costs of all rounds give an interval. It is wide enough that trials without any
difference exclude zero in fewer than one of a hundred proofs, all causes together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from lockstep.explain.ablation_proof import (
    Contradiction,
    CostRange,
    JournalCost,
    is_contradicted,
    list_contradictions,
)
from lockstep.explain.measures.bottleneck import AVOIDABLE, IMBALANCE, INPUT, NETWORK, compare_work
from lockstep.explain.measures.disturbance import DISTURBING
from lockstep.explain.reading.steps import Column

Round = Mapping[str, Column]
"""Seconds of the measured steps of each kind of trial, [workers, steps]: full, and perhaps communication and input."""
ERROR = 0.0025
"""How often trials without a difference may exclude zero for any cause, if their rounds were normally distributed. Real
ones are not, so this is a quarter of what is promised."""
SMALLEST = 0.05
"""Smaller costs are not called proven: reused batches and the order of trials can cause such differences."""
MOST_ROUNDS = 50
"""More rounds are not proposed."""
NAMES = {NETWORK: "communication", INPUT: "input", IMBALANCE: "waiting for the slowest worker"}


@dataclass(frozen=True)
class Circumstances:
    """What else is known about the trials."""

    others_share: float | None = 0.0  # of the cores, used by other programs during the trials; None: not measured
    journal: Mapping[str, JournalCost] = field(default_factory=dict)  # by cause, where it measures the same
    lockstep: bool = True  # workers step together, so that all wait for the slowest one


@dataclass(frozen=True)
class Decision:
    """What the trials prove, and why they do not prove more."""

    costs: dict[str, CostRange]  # by cause
    proven: tuple[str, ...]  # causes whose cost is proven, the largest first
    slowest: int | None  # the worker that is slowest in every round
    contradictions: list[Contradiction]
    needed: list[str]  # what a proof would need; empty when something is proven


def decide(rounds: Sequence[Round], known: Circumstances) -> Decision:
    """Returns which costs are proven: the interval of their rounds excludes zero, no other program disturbed the trials,
    and the journal contradicts neither them nor anything that may cost more."""
    samples, slowest = _sample_costs(rounds, known.lockstep)
    costs = {cause: _make_range(cause, sample) for cause, sample in samples.items()}
    contradictions = list_contradictions(costs, known.journal)
    is_disturbed = known.others_share is None or known.others_share > DISTURBING
    clear = [cause for cause in AVOIDABLE if costs[cause].low > 0 and costs[cause].value >= SMALLEST]
    standing = [cause for cause in clear if not is_contradicted(cause, costs[cause].value, contradictions)]
    proven = () if is_disturbed else sorted(standing, key=lambda cause: -costs[cause].value)
    needed = [] if proven else _list_needs(costs, samples, known, contradictions)
    return Decision(costs, tuple(proven), slowest, contradictions, needed)


def _sample_costs(rounds: Sequence[Round], lockstep: bool) -> tuple[dict[str, Column], int | None]:
    """Returns for every cause one value per round, which is symmetric around zero if the cause costs nothing: the logarithm
    of how many times longer a step is, or for imbalance its share of the step. Also returns the slowest worker."""
    times = {kind: np.array([_measure_step(one[kind], lockstep) for one in rounds]) for kind in rounds[0]}
    nothing = np.zeros(len(rounds))
    samples = {
        NETWORK: np.log(times["full"] / times["communication"]) if "communication" in times else nothing,
        INPUT: np.log(times["full"] / times["input"]) if "input" in times else nothing,
        IMBALANCE: nothing,
    }
    slowest: set[int | None] = {None}
    if lockstep and "communication" in times and len(rounds[0]["communication"]) > 1:
        shortest = min(one["communication"].shape[1] for one in rounds)
        silent = np.stack([one["communication"][:, :shortest] for one in rounds])  # [rounds, workers, steps]
        excess = [_measure_excess(silent, number) for number in range(len(rounds))]
        samples[IMBALANCE] = np.array([seconds for seconds, _ in excess]) / times["full"]
        slowest = {worker for _, worker in excess}
    return samples, slowest.pop() if len(slowest) == 1 else None


def _measure_step(seconds: Column, lockstep: bool) -> float:
    """Returns the median step of the slowest worker, or of all workers where they do not step together."""
    return float(np.median(seconds.max(0) if lockstep else seconds))


def _measure_excess(silent: Column, number: int) -> tuple[float, int | None]:
    """Returns by how many seconds the slowest worker exceeds a fair share in one round without communication. The other
    rounds say which worker is the slowest in each step: otherwise the maximum of mere noise would look like imbalance."""
    others = np.delete(silent, number, 0).mean(0) if len(silent) > 1 else silent[0]  # [workers, steps]
    last, own = others.argmax(0), silent[number]
    comparison = compare_work(others, last)
    if not comparison.steady:
        return float(np.median(own[last, np.arange(own.shape[1])] - own.mean(0))), None
    fair = np.delete(own, comparison.slowest, 0).mean(0)
    return float(np.median(own[comparison.slowest] - fair)), comparison.slowest


def _make_range(cause: str, sample: Column) -> CostRange:
    """Returns the mean of the rounds and its interval as shares of a step, at most a step to both sides. With one round the
    interval is infinite."""
    middle, half = float(sample.mean()), find_half_width(sample)
    ends = np.array([middle, middle - half, middle + half])
    with np.errstate(over="ignore"):
        shares = ends if cause == IMBALANCE else 1 - np.exp(-ends)
    return CostRange(*(shares if len(sample) < 2 else np.clip(shares, -1.0, 1.0)).tolist())


def find_half_width(sample: Column) -> float:
    """Returns half the length of the interval of the mean; infinite for one round, which says nothing about the others."""
    if len(sample) < 2:
        return float("inf")
    return find_student_quantile(1 - ERROR / len(AVOIDABLE), len(sample) - 1) * _find_error(sample, len(sample))


def _find_error(sample: Column, rounds: int) -> float:
    """Returns the standard error that the mean of so many rounds would have."""
    return float(sample.std(ddof=1)) / rounds**0.5


@cache
def find_student_quantile(probability: float, freedom: int) -> float:
    """Returns the quantile of Student's t distribution, from its density on a fine grid."""
    angles = np.linspace(
        0.0, np.pi / 2, 200_001
    )  # t = sqrt(freedom) tan(angle): the density becomes a power of the cosine
    density = np.cos(angles) ** (freedom - 1)
    above = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angle = np.interp(2 * probability - 1, above / above[-1], angles)
    return float(np.sqrt(freedom) * np.tan(angle))


def _list_needs(
    costs: Mapping[str, CostRange],
    samples: Mapping[str, Column],
    known: Circumstances,
    contradictions: Sequence[Contradiction],
) -> list[str]:
    """Returns sentences about what keeps the trials from proving anything, and what would."""
    needs = [one.sentence for one in contradictions]
    if contradictions:
        needs.append("A proof needs trials and journal to agree: train again on the machine as it is now, then repeat.")
    if known.others_share is None:
        needs.append("It is not known whether other programs used the machine.")
    elif known.others_share > DISTURBING:
        used = f"{100 * known.others_share:.0f} % of the cores"
        needs.append(f"Other programs used {used} during the trials: repeat with nothing else running.")
    largest = max(AVOIDABLE, key=lambda cause: costs[cause].value)
    if costs[largest].value < SMALLEST:
        rounds = len(samples[largest])
        most = max(cost.high for cost in costs.values())
        bound = f": none is more than {100 * most:.0f} % of a step" if rounds > 1 and most < 1 else ""
        needs.append(f"No cost reaches {100 * SMALLEST:.0f} %{bound}.")
    elif costs[largest].low <= 0:
        needs.append(f"{costs[largest].describe(NAMES[largest]).capitalize()}: {_propose_rounds(samples[largest])}.")
    return needs


def _propose_rounds(sample: Column) -> str:
    """Returns how many rounds a proof would need if they varied as these do."""
    if len(sample) < 2:
        return "one round does not show how much rounds vary; use --rounds 6"
    for rounds in range(len(sample) + 1, MOST_ROUNDS + 1):
        quantile = find_student_quantile(1 - ERROR / len(AVOIDABLE), rounds - 1)
        if quantile * _find_error(sample, rounds) < sample.mean():
            return f"the rounds vary too much; about {rounds} rounds would be needed"
    return "the rounds vary too much, and more of them would not help: use more --steps on a quieter machine"
