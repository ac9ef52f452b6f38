"""The report of a run: all answers, as one offline page, as text, and as facts for programs."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.explain.ablation_proof import ProofSection, make_proof_section
from lockstep.explain.advice import Advice, AdviceFacts, list_advice
from lockstep.explain.answer import Answer, AnswerFacts, Chart
from lockstep.explain.answers import (
    checkpoint_contents,
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
from lockstep.explain.appendix import Appendix, AppendixFacts, make_appendix
from lockstep.explain.evidence import Evidence
from lockstep.explain.fine_tuning import FineTuning, FineTuningFacts, make_fine_tuning
from lockstep.explain.measures.bottleneck import Bottleneck, BottleneckFacts
from lockstep.explain.pages.html_page import render, templates
from lockstep.explain.reading.record import Record
from lockstep.explain.reference import ReferenceComparison, ReferenceFacts, compare
from lockstep.explain.summary import Summary, summarise_record
from lockstep.explain.verdict_sentences import write_verdict
from lockstep.explain.what_went_wrong import FaultFacts, WhatWentWrong, explain_faults
from lockstep.files import write_atomically
from lockstep.run.directory import RunDirectory
from lockstep.terminal_text import strip_controls

ANSWERS: tuple[Callable[[Evidence], Answer], ...] = (
    duration.answer,
    trained.answer,
    overfitting.answer,
    utilisation.answer,
    network.answer,
    rate.answer,
    corpus_size.answer,
    checkpoint_contents.answer,
    checkpoint_size.answer,
    step_time.answer,
    correlation.answer,
)
"""All questions in the order of the report. To add one, write a module in answers/ and list its `answer` here."""
EXAMPLES = 3


class ReportFacts(TypedDict):
    """The JSON of a report."""

    run: str
    verdict: list[str]
    summary: dict[str, JsonValue]
    bottleneck: BottleneckFacts | None
    proof: dict[str, JsonValue] | None
    answers: list[AnswerFacts]
    fine_tuning: FineTuningFacts | None
    reference: ReferenceFacts | None
    faults: FaultFacts | None
    advice: list[AdviceFacts]
    appendix: AppendixFacts


@dataclass(frozen=True)
class Report:
    """Everything that is reported about a run."""

    name: str
    made: float
    summary: Summary
    verdict: list[str]  # three sentences; before them what disturbed the run, after them what fine-tuning changed
    answers: list[Answer]
    bottleneck: Bottleneck | None
    proof: ProofSection | None
    fine_tuning: FineTuning | None
    comparison: ReferenceComparison | None
    faults: WhatWentWrong | None
    advice: list[Advice]
    appendix: Appendix

    def facts(self) -> ReportFacts:
        """Returns the report for programs."""
        summary = self.summary.as_dict()
        del summary["examples"]
        return {
            "run": self.name,
            "verdict": self.verdict,
            "summary": summary,
            "bottleneck": self.bottleneck.facts() if self.bottleneck else None,
            "proof": self.proof.facts if self.proof else None,
            "answers": [answer.facts(number) for number, answer in enumerate(self.answers, 1)],
            "fine_tuning": self.fine_tuning.facts() if self.fine_tuning else None,
            "reference": self.comparison.facts() if self.comparison else None,
            "faults": self.faults.facts() if self.faults else None,
            "advice": [advice.facts() for advice in self.advice],
            "appendix": self.appendix.facts(),
        }

    def charts(self) -> list[Chart]:
        others = [part.charts for part in (self.fine_tuning, self.comparison, self.proof) if part is not None]
        return [chart for group in [*(answer.charts for answer in self.answers), *others] for chart in group]


def make(path: Path, name: str | None = None, running: bool | None = None) -> Report:
    """Reads a run directory and answers everything that can be answered from it. `running` says whether the run is still
    training, where `path` is a copy that cannot show it."""
    record = Record.open(path, name, running)
    evidence = Evidence(record)
    answers = [answer(evidence) for answer in ANSWERS]
    summary, proof = summarise_record(record), make_proof_section(record, evidence.bottleneck)
    fine_tuning = make_fine_tuning(record)
    return Report(
        name=name or str(path),
        made=time.time(),
        summary=summary,
        verdict=write_verdict(evidence, summary, proof) + ([fine_tuning.text] if fine_tuning else []),
        answers=answers,
        bottleneck=evidence.bottleneck,
        proof=proof,
        fine_tuning=fine_tuning,
        comparison=compare(record),
        faults=explain_faults(evidence),
        advice=list_advice(evidence),
        appendix=make_appendix(evidence),
    )


def write(report: Report, folder: Path, refresh: int | None = None) -> tuple[Path, Path]:
    """Writes report.html and report.md and returns their paths. With `refresh`, the page reloads itself after that many
    seconds."""
    places = RunDirectory(folder)
    try:
        write_atomically(places.report_text, render_text(report))
        write_atomically(places.report, render_page(report, refresh))
    except OSError as error:
        reason = f"The report cannot be written to {folder}: {error.strerror}."
        raise LockstepError(reason, "Name another folder with --to.") from None
    return places.report, places.report_text


def render_text(report: Report) -> str:
    examples = report.summary.examples[:EXAMPLES]
    return strip_controls(templates().get_template("report.md.j2").render(report=report, examples=examples))


def render_page(report: Report, refresh: int | None = None) -> str:
    examples = report.summary.examples[:EXAMPLES]
    return render("report.html.j2", report.charts(), report=report, refresh=refresh, examples=examples)
