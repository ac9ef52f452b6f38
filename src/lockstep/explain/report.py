"""The report of a run: all answers, as one offline page, as text, and as facts."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.errors import LockstepError
from lockstep.explain import advice, appendix, bottleneck, reference
from lockstep.explain.answer import Answer, Chart
from lockstep.explain.answers import (
    checkpoint_size,
    corpus_size,
    correlation,
    duration,
    network,
    overfitting,
    rate,
    step_time,
    trained,
    utilisation,
)
from lockstep.explain.bottleneck import AVOIDABLE, NOT_PROVEN, Bottleneck, judge_costs
from lockstep.explain.formatting import count, milliseconds, number, plural, seconds, shown
from lockstep.explain.pages.charts import bars
from lockstep.explain.pages.html_page import render, templates
from lockstep.explain.reading.machines import machines
from lockstep.explain.reading.record import Record
from lockstep.explain.summary import Summary, summary_of
from lockstep.files import write_atomically
from lockstep.run.directory import RunDirectory

EXAMPLES = 3


@dataclass(frozen=True)
class Report:
    """Everything that is reported about a run."""

    name: str
    made: float
    summary: Summary
    verdict: list[str]  # three sentences
    answers: list[Answer]
    bottleneck: bottleneck.Bottleneck | None
    proof: "ProofFacts | None"
    comparison: reference.ReferenceComparison | None
    advice: list[advice.Advice]
    appendix: appendix.Appendix

    def facts(self) -> dict[str, Any]:
        """All of it for programs."""
        summary = self.summary.as_dict()
        del summary["examples"]
        return {
            "run": self.name,
            "verdict": self.verdict,
            "summary": summary,
            "bottleneck": self.bottleneck.facts() if self.bottleneck else None,
            "proof": self.proof.told if self.proof else None,
            "answers": [answer.facts() for answer in self.answers],
            "reference": {"verdict": self.comparison.verdict, "text": self.comparison.text}
            if self.comparison
            else None,
            "advice": [one.facts() for one in self.advice],
            "appendix": appendix.facts(self.appendix),
        }

    def charts(self) -> list[Chart]:
        others = [self.comparison.charts if self.comparison else [], self.proof.charts if self.proof else []]
        return [chart for group in [*(answer.charts for answer in self.answers), *others] for chart in group]


@dataclass(frozen=True)
class ProofFacts:
    """The result of an ablation: runs without communication, with free input, and of one worker alone."""

    told: dict[str, Any]
    sentence: str
    rows: list[tuple[str, str, str]]  # what was left out, step time, change
    charts: list[Chart]


def make(path: Path, name: str | None = None, running: bool | None = None) -> Report:
    """Reads a run directory and answers everything that can be answered from it. `running` says whether the run is still
    training, where `path` is a copy that cannot show it."""
    record = Record.open(path, name, running)
    seen, wall = machines(record), duration.measure(record)
    held_back = bottleneck.find(record)
    learned, by_heart = trained.judge(record), overfitting.judge(record)
    times = step_time.measure(record)
    answers = [
        duration.answer(record, wall),
        trained.answer(record, learned),
        overfitting.answer(record, by_heart),
        utilisation.answer(record, held_back, seen, wall),
        network.answer(record, held_back, network.measure(record, seen)),
        rate.answer(record),
        corpus_size.answer(record),
        checkpoint_size.answer_files(record),
        checkpoint_size.answer_size(record),
        step_time.answer(record, times),
        correlation.answer(record, seen),
    ]
    summary, proof = summary_of(record), _proof(record)
    verdict = [
        _what_happened(summary, wall),
        _what_was_learned(summary, learned, by_heart),
        _what_it_is_bound_by(held_back, proof),
    ]
    changes = advice.rank(record, wall, held_back, learned, by_heart)
    return Report(
        name=name or str(path),
        made=time.time(),
        summary=summary,
        verdict=verdict,
        answers=answers,
        bottleneck=held_back,
        proof=proof,
        comparison=reference.compare(record),
        advice=changes,
        appendix=appendix.collect(record),
    )


def _what_happened(summary: Summary, wall: duration.Duration) -> str:
    setting = ", ".join(part for part in (summary.way, summary.precision) if part)
    with_whom = f" with {plural(summary.workers, 'worker')} ({setting})" if summary.workers else ""
    if not summary.step:
        return f"The run is {summary.state} and has not taken a step{with_whom}."
    state = {"running": "is running and has taken", "finished": "finished", "stopped": "was stopped after"}.get(
        summary.state, "was cut off after"
    )
    speed = f", {count(summary.words_per_second)} {summary.unit} per second" if summary.words_per_second else ""
    return f"The run {state} {plural(summary.step, 'step')} in {seconds(wall.wall)}{with_whom}{speed}."


def _what_was_learned(summary: Summary, learned: trained.Trained, by_heart: overfitting.Overfitting) -> str:
    if summary.best_score is None:
        return "How well the model learned is not known: nothing was evaluated."
    best = f"the best {shown(summary.metric)} was {number(summary.best_score)} at step {count(summary.best_step or 0)}"
    if summary.on_test and summary.last_score is not None:
        last = f"{shown(summary.metric)} on the test set was {number(summary.last_score)} at the last evaluation"
        best = f"{last} ({best}, selected on that same set)" if summary.last_score != summary.best_score else last
    if by_heart.verdict == overfitting.OVERFITTING and by_heart.best is not None:
        turn = count(by_heart.steps[by_heart.best])
        return f"The model is overfitting: its validation loss was lowest at step {turn} and has risen since; {best}."
    word = {trained.TRAINED: "The model is trained", trained.LEARNING: "The model is still learning"}.get(
        learned.verdict, "It is too early to say whether the model is fully trained"
    )
    heart = {
        overfitting.WIDENING: "the gap between training and validation loss widens",
        overfitting.NOT_OVERFITTING: "there is no overfitting",
    }.get(by_heart.verdict, "overfitting cannot be judged yet")
    return f"{word}, and {heart}; {best}."


def _what_it_is_bound_by(held_back: Bottleneck | None, proof: ProofFacts | None) -> str:
    """The proof's sentence where its trials had a network if and only if the run had one, otherwise the journals'."""
    several = held_back is not None and held_back.hosts > 1
    if proof and proof.told.get("bottleneck") != NOT_PROVEN and bool(proof.told.get("link")) == several:
        return proof.sentence
    return held_back.sentence() if held_back else "What a step is made of was not measured."


def _proof(record: Record) -> ProofFacts | None:
    told = record.proof
    if told is None or not isinstance(told.get("step_seconds"), int | float):
        return None
    step = float(told["step_seconds"])
    names = {
        "step_seconds": "as it is",
        "without_communication_seconds": "without communication",
        "free_input_seconds": "with free input",
        "alone_seconds": "one worker alone",
    }
    known = {label: float(told[key]) for key, label in names.items() if isinstance(told.get(key), int | float)}
    rows = [(label, milliseconds(value), f"{value / step - 1:+.1%}") for label, value in known.items()]
    texts = [text for _, text, _ in rows]
    says = ", ".join(f"{label} {text}" for label, text in zip(known, texts, strict=True))
    title = "Step time with one thing left out"
    chart = bars("proof", title, says, list(known), [1e3 * one for one in known.values()], texts, "milliseconds")
    sentence = str(told.get("sentence") or says).strip().rstrip(".")
    if told.get("bottleneck") == NOT_PROVEN:
        return ProofFacts(told, f"Nothing is proven: {sentence}.", rows, [chart])
    verdict, costs = told.get("verdict", ""), told.get("costs")
    if not verdict and isinstance(costs, dict) and all(isinstance(costs.get(part), int | float) for part in AVOIDABLE):
        verdict = judge_costs(costs, bool(told.get("link"))).sentence()  # a proof of version 0.1.0
    return ProofFacts(told, f"{verdict} Proven by ablation: {sentence}.".lstrip(), rows, [chart])


def write(report: Report, folder: Path, refresh: int | None = None) -> tuple[Path, Path]:
    """Writes report.html and report.md; `refresh` makes the page reload itself after that many seconds."""
    places = RunDirectory(folder)
    try:
        write_atomically(places.report_text, text(report))
        write_atomically(places.report, page(report, refresh))
    except OSError as error:
        why = f"The report cannot be written to {folder}: {error.strerror}."
        raise LockstepError(why, "Name another folder with --to.") from None
    return places.report, places.report_text


def text(report: Report) -> str:
    examples = report.summary.examples[:EXAMPLES]
    return str(templates().get_template("report.md.j2").render(report=report, examples=examples))


def page(report: Report, refresh: int | None = None) -> str:
    examples = report.summary.examples[:EXAMPLES]
    return render("report.html.j2", report.charts(), report=report, refresh=refresh, examples=examples)
