"""The section about `lockstep prove`: runs without communication, with free input, and of one worker alone."""

from dataclasses import dataclass

from pydantic import JsonValue

from lockstep.explain.answer import Chart
from lockstep.explain.formatting import milliseconds
from lockstep.explain.measures.bottleneck import AVOIDABLE, NOT_PROVEN, judge_costs
from lockstep.explain.pages.charts import draw_bars
from lockstep.explain.reading.json_access import get_dict, get_number
from lockstep.explain.reading.record import Record

LABELS = {
    "step_seconds": "as it is",
    "without_communication_seconds": "without communication",
    "free_input_seconds": "with free input",
    "alone_seconds": "one worker alone",
}


@dataclass(frozen=True)
class ProofSection:
    facts: dict[str, JsonValue]  # proof.json
    sentence: str
    rows: list[tuple[str, str, str]]  # what was left out, step time, change
    charts: list[Chart]

    @property
    def is_proven(self) -> bool:
        return self.facts.get("bottleneck") != NOT_PROVEN

    @property
    def used_network(self) -> bool:
        """Whether the trials ran between emulated hosts."""
        return bool(self.facts.get("link"))


def make_proof_section(record: Record) -> ProofSection | None:
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
    return ProofSection(facts, _write_sentence(facts, listed), rows, [chart])


def _write_sentence(facts: dict[str, JsonValue], listed: str) -> str:
    sentence = str(facts.get("sentence") or listed).strip().rstrip(".")
    if facts.get("bottleneck") == NOT_PROVEN:
        return f"Nothing is proven: {sentence}."
    verdict = str(facts.get("verdict") or "")
    costs = {part: get_number(get_dict(facts.get("costs")).get(part)) for part in AVOIDABLE}
    known = {part: cost for part, cost in costs.items() if cost is not None}
    if not verdict and len(known) == len(costs):
        verdict = judge_costs(known, bool(facts.get("link"))).sentence()  # a proof of version 0.1.0
    return f"{verdict} Proven by ablation: {sentence}.".lstrip()
