"""The section about `lockstep prove`: runs without communication, with free input, and of one worker alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from lockstep.explain.answer import Chart
from lockstep.explain.formatting import milliseconds, share
from lockstep.explain.measures.bottleneck import AVOIDABLE, IMBALANCE, INPUT, NETWORK, NOT_PROVEN, Bottleneck
from lockstep.explain.pages.charts import draw_bars
from lockstep.explain.reading.json_access import get_dict, get_number, list_numbers
from lockstep.explain.reading.record import Record

LABELS = {
    "step_seconds": "as it is",
    "without_communication_seconds": "without communication",
    "free_input_seconds": "with free input",
    "alone_seconds": "one worker alone",
}
TOLERANCE = 0.10
"""Trials and journal may differ by this share of a step beyond their intervals: a journal does not see how much an exchange
slows computing while both overlap."""
UNBOUNDED = 0.995
"""An interval that ends beyond this share of a step bounds nothing: no cost is more than the step."""
_ACTIVITIES = {NETWORK: "the exchange", INPUT: "the input", IMBALANCE: "imbalance"}


@dataclass(frozen=True)
class CostRange:
    """The cost of something as a share of a step, and the interval that trials give it."""

    value: float
    low: float
    high: float

    def describe(self, what: str) -> str:
        """Returns `input costs 12.0 % of a step (8.0 % to 16.0 %)`."""
        if not math.isfinite(self.low) or not math.isfinite(self.high):
            return f"{what} costs {share(self.value)} of a step in the only round"
        return f"{what} costs {share(self.value)} of a step ({self._describe_interval()})"

    def _describe_interval(self) -> str:
        if self.low <= -1:
            return (
                "the rounds vary too much for an interval" if self.high > UNBOUNDED else f"at most {share(self.high)}"
            )
        if self.high > UNBOUNDED:
            return f"at least {share(self.low)}, no upper bound"
        return f"{share(self.low)} to {share(self.high)}"


@dataclass(frozen=True)
class JournalCost:
    """The cost of something as a share of a step by the journal, and two standard errors."""

    value: float
    noise: float = 0.0


def list_journal_costs(bottleneck: Bottleneck | None) -> dict[str, JournalCost]:
    """Returns what the journals of a run measured of each cause; empty when they measured no step."""
    if bottleneck is None:
        return {}
    noise = bottleneck.verdict.noise
    return {cause: JournalCost(bottleneck.cost(cause), noise.get(cause, 0.0)) for cause in AVOIDABLE}


@dataclass(frozen=True)
class Contradiction:
    """Trials and journal disagree about the cost of something."""

    cause: str
    sentence: str
    largest: float  # the larger one of both costs, as a share of a step


def list_contradictions(costs: Mapping[str, CostRange], journal: Mapping[str, JournalCost]) -> list[Contradiction]:
    """Returns the causes whose intervals are further apart than TOLERANCE."""
    contradictions = []
    for cause, known in journal.items():
        trials = costs[cause]
        above = trials.low - (known.value + known.noise)
        below = (known.value - known.noise) - trials.high
        if max(above, below) > TOLERANCE:
            measured = f"the journal measured {share(known.value)}"
            sentence = f"The trials say that {trials.describe(_ACTIVITIES[cause])}, but {measured}."
            contradictions.append(Contradiction(cause, sentence, max(trials.value, known.value)))
    return contradictions


def is_contradicted(cause: str, cost: float, contradictions: Sequence[Contradiction]) -> bool:
    """Whether a proof of this cost cannot stand: it is contradicted itself, or something that may cost more is."""
    return any(one.cause == cause or one.largest > cost for one in contradictions)


@dataclass(frozen=True)
class ProofSection:
    facts: dict[str, JsonValue]  # proof.json
    sentence: str
    rows: list[tuple[str, str, str]]  # what was left out, step time, change
    charts: list[Chart]
    contradictions: list[Contradiction]  # with the journals as they are now

    @property
    def is_proven(self) -> bool:
        return _is_proven(self.facts, self.contradictions)

    @property
    def costs(self) -> dict[str, CostRange]:
        return _read_costs(self.facts)

    @property
    def used_network(self) -> bool:
        """Whether the trials ran between emulated hosts."""
        return bool(self.facts.get("link"))


def _is_proven(facts: Mapping[str, JsonValue], contradictions: Sequence[Contradiction]) -> bool:
    """Whether the trials prove a cost. Those of earlier versions had no interval, so they prove nothing."""
    costs, cause = _read_costs(facts), str(facts.get("bottleneck")).partition(":")[0]
    if not costs or cause == NOT_PROVEN:
        return False
    return not is_contradicted(cause, costs[cause].value if cause in costs else 0.0, contradictions)


def _read_costs(facts: Mapping[str, JsonValue]) -> dict[str, CostRange]:
    """Returns the intervals of a proof; empty for one of an earlier version."""
    values, intervals = get_dict(facts.get("costs")), get_dict(facts.get("intervals"))
    costs = {}
    for cause in AVOIDABLE:
        interval, value = intervals.get(cause), get_number(values.get(cause))
        ends = list_numbers(interval) if isinstance(interval, list) else []
        if len(ends) != 2 or value is None:
            return {}
        costs[cause] = CostRange(value, *ends)
    return costs


def make_proof_section(record: Record, bottleneck: Bottleneck | None) -> ProofSection | None:
    """Returns None when the run has no proof."""
    facts = record.proof or {}
    step = get_number(facts.get("step_seconds"))
    if step is None:
        return None
    times = {label: get_number(facts.get(key)) for key, label in LABELS.items()}
    known = {label: float(value) for label, value in times.items() if value is not None}
    rows = [(label, milliseconds(value), f"{value / step - 1:+.1%}") for label, value in known.items()]
    texts = [text for _, text, _ in rows]
    listed = ", ".join(f"{label} {text}" for label, text in zip(known, texts, strict=True))
    title, values = "Step time with one thing left out", [1e3 * value for value in known.values()]
    chart = draw_bars("proof", title, listed, list(known), values, texts, "milliseconds")
    costs, is_same = _read_costs(facts), bool(facts.get("link")) == (bottleneck is not None and bottleneck.hosts > 1)
    contradictions = list_contradictions(costs, list_journal_costs(bottleneck)) if costs and is_same else []
    return ProofSection(facts, _write_sentence(facts, listed, contradictions), rows, [chart], contradictions)


def _write_sentence(facts: dict[str, JsonValue], listed: str, contradictions: Sequence[Contradiction]) -> str:
    sentence = str(facts.get("sentence") or listed).strip().rstrip(".")
    if facts.get("bottleneck") == NOT_PROVEN:
        return f"Nothing is proven: {sentence}."
    if not _read_costs(facts):
        return f"Nothing is proven, because these trials of an earlier version have no interval: {sentence}."
    disagreements = " ".join(one.sentence for one in contradictions)
    if not _is_proven(facts, contradictions):
        return f"Nothing is proven, because trials and journal contradict each other. {disagreements}"
    return f"Proven by ablation: {sentence}. {disagreements}".rstrip()
