"""What `lockstep evaluate` prints: lines for a terminal of 80 columns, JSON, and the view that its page shows."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypedDict

from lockstep.cli.common import duration, fold

if TYPE_CHECKING:
    from lockstep.explain.pages.evaluation_page import EvaluationView
    from lockstep.translate.score_sentences import SentenceScore
    from lockstep.translate.score_texts import ParallelText, TextEvaluation
    from lockstep.translate.scores import CorpusScore

WIDTH, LABEL, COLUMN = 80, 19, 17
"""Columns of the terminal, of the names before values, and of the values of each of two models."""
ORDINALS = ("first", "second")


class SystemFacts(TypedDict, total=False):
    """How a model was run, and what else was measured of it, as JSON has it."""

    model: str
    beam: int
    length_penalty: float
    loss: float  # per target word, without label smoothing
    Eval_BLEU_Score: float
    sacrebleu: float
    signature: str
    sentences: int
    limited: int  # sentences whose translation or reference search.max_words cuts
    limit: int  # pieces of the longest source sentence in training
    too_long: int  # sentences that are longer
    split: int  # sentences that were split because they are longer
    precision: str
    trained_in: str
    seconds: float
    words_per_second: float  # target pieces
    examples: list[list[str]]  # source, translation, reference


@dataclass(frozen=True)
class SystemOutput:
    """The translations of a model, and how it was run."""

    place: str  # as the user named it
    translations: list[str]
    facts: SystemFacts


def make_json(text: "ParallelText", systems: Sequence[SystemOutput], scored: "TextEvaluation") -> dict[str, object]:
    """Returns the facts as JSON: of one model at the top level, of two in a list with their differences."""
    models: list[dict[str, object]] = []
    for system, scores, rows in zip(systems, scored.scores, scored.by_length, strict=True):
        values = {key: score.value for key, score in scores.items()}
        signature = scores["sacrebleu"].signature
        model: dict[str, object] = {"place": system.place, "signature": signature, **system.facts, **values}
        model |= {"scores": {key: asdict(score) for key, score in scores.items()}}
        models.append(model | {"by_length": [asdict(row) for row in rows]})
    common: dict[str, object] = {"text": text.name, "sentences": len(text.sources)}
    worst = [asdict(one) for one in scored.worst]
    if len(models) == 1:
        return common | models[0] | {"worst": worst}
    differences = [
        asdict(one) | {"is_significant": one.is_significant, "sentence": one.describe()} for one in scored.differences
    ]
    most_different = [asdict(one) for one in scored.most_different]
    return common | {"models": models, "differences": differences, "worst": worst, "most_different": most_different}


def make_view(text: "ParallelText", systems: Sequence[SystemOutput], scored: "TextEvaluation") -> "EvaluationView":
    """Returns what the page shows."""
    from lockstep.explain.pages.evaluation_page import DrawnScore, EvaluationView

    scores = [
        DrawnScore(
            metric.title,
            [own[metric.key].value for own in scored.scores],
            [find_interval(own[metric.key]) for own in scored.scores],
            scored.scores[0][metric.key].signature,
            metric.note,
        )
        for metric in scored.metrics
    ]
    details = [describe_facts(system.facts) for system in systems]
    names = list(dict.fromkeys(name for own in details for name in own))
    verdict = [one.describe() for one in scored.differences] or [
        f"{one.title} is {format_score(scored.scores[0][metric.key])}."
        for one, metric in zip(scores, scored.metrics, strict=True)
    ]
    return EvaluationView(
        models=[system.place for system in systems],
        text=text.name,
        sentences=len(text.sources),
        verdict=verdict,
        scores=scores,
        by_length=scored.by_length,
        worst=scored.worst,
        most_different=scored.most_different,
        details=[(name, *(own.get(name, "-") for own in details)) for name in names],
        notes=list(dict.fromkeys(note for system in systems for note in list_notes(system.facts))),
    )


def format_lines(text: "ParallelText", systems: Sequence[SystemOutput], scored: "TextEvaluation") -> Iterator[str]:
    """Yields the lines for a terminal."""
    yield from _wrap(f"{text.name}, {len(text.sources):,} sentence{'s' * (len(text.sources) != 1)}", "")
    if len(systems) == 1:
        yield from _format_model(systems[0], scored)
    else:
        yield from _format_models(systems, scored)
    for metric in scored.metrics:
        if metric.note:
            yield f"  {metric.note}"
    for note in dict.fromkeys(note for system in systems for note in list_notes(system.facts)):
        yield from _wrap(note, "  ")
    yield from ("", *_format_lengths(scored))
    sentences = scored.most_different or scored.worst
    if sentences:
        yield from ("", "Where they differ most, by chrF" if scored.most_different else "Worst sentences, by chrF")
        for sentence in sentences:
            yield from _format_sentence(sentence)
    yield from ("", f"Signatures: {', '.join(metric.title for metric in scored.metrics)}")
    for score in scored.scores[0].values():
        yield from _wrap_signature(score.signature)


def _format_model(system: SystemOutput, scored: "TextEvaluation") -> Iterator[str]:
    facts = describe_facts(system.facts)
    yield from _format_value("model", *_fold_paths(facts.pop("model")))
    for metric in scored.metrics:
        yield from _format_value(metric.title, format_score(scored.scores[0][metric.key]))
    for name, value in facts.items():
        yield from _format_value(name, value)


def _format_models(systems: Sequence[SystemOutput], scored: "TextEvaluation") -> Iterator[str]:
    """Yields the names of two models, a table with a column for each, and what their differences mean."""
    facts = [describe_facts(system.facts) for system in systems]
    for name, own in zip(ORDINALS, facts, strict=True):
        yield from _format_value(name, *_fold_paths(own.pop("model")))
    yield ""
    yield _format_row("", *ORDINALS, "difference")
    for metric, difference in zip(scored.metrics, scored.differences, strict=True):
        scores = [own[metric.key] for own in scored.scores]
        yield _format_row(metric.title, *(f"{score.value:.2f}" for score in scores), f"{difference.value:+.2f}")
        intervals = [find_interval(score) for score in scores]
        if None not in intervals:
            yield _format_row("  95 % interval", *(f"{one[0]:.2f}-{one[1]:.2f}" for one in intervals if one))
    losses = [system.facts.get("loss") for system in systems]
    if None not in losses:
        yield _format_row("loss", *(f"{loss:.4f}" for loss in losses))
    yield _format_row("words/s", *(f"{system.facts['words_per_second']:,.0f}" for system in systems))
    yield ""
    for difference in scored.differences:
        yield from _wrap(difference.describe(), "  ")


def describe_facts(facts: SystemFacts) -> dict[str, str]:
    """Returns how a model was run and what else was measured, as names and values for people."""
    described = {"model": facts["model"]}
    if "loss" in facts:
        described["loss"] = f"{facts['loss']:.4f} per target word, without label smoothing"
    if "Eval_BLEU_Score" in facts:
        described["Eval_BLEU_Score"] = f"{facts['Eval_BLEU_Score']:.4f} (teacher-forced, on pieces, 0-1: not BLEU)"
    described["search"] = f"beam {facts['beam']}, length penalty {facts['length_penalty']}"
    speed = f"{facts['words_per_second']:,.0f} words/s (target pieces)"
    described["speed"] = f"{speed}, {duration(facts['seconds'])}"
    return described


def list_notes(facts: SystemFacts) -> Iterator[str]:
    """Yields sentences on what a reader of the scores should know."""
    if facts.get("trained_in", "fp32") != facts.get("precision", "fp32"):
        yield f"computed in fp32; evaluations in training are in {facts['trained_in']} and differ a little"
    if facts.get("limited"):
        yield f"search.max_words cuts the translation or the reference of {facts['limited']:,} sentences"
    if facts.get("too_long"):
        yield f"{facts['too_long']:,} sentences have more than {facts['limit']:,} pieces, more than any in training."
        yield "They are scored as a whole; `lockstep translate` splits such lines."
    if facts.get("split"):
        yield f"{facts['split']:,} sentences have more than {facts['limit']:,} pieces and were split."


def find_interval(score: "CorpusScore") -> tuple[float, float] | None:
    """Returns the ends of the 95 % interval; None if it was not computed."""
    if score.mean is None or score.margin is None:
        return None
    return score.mean - score.margin, score.mean + score.margin


def format_score(score: "CorpusScore") -> str:
    interval = find_interval(score)
    return f"{score.value:.2f}" + (f" (95 % interval {interval[0]:.2f} to {interval[1]:.2f})" if interval else "")


def _format_lengths(scored: "TextEvaluation") -> Iterator[str]:
    yield "By length of the source"
    if len(scored.by_length) > 1:
        yield f"{'':21}" + "".join(f"{name:>29}" for name in ORDINALS)
    yield f"  {'words':<9}{'sentences':>10}" + f"{'BLEU':>9}{'chrF':>7}{'length ratio':>13}" * len(scored.by_length)
    for rows in zip(*scored.by_length, strict=True):
        values = (f"{row.sacrebleu:9.2f}{row.chrf:7.2f}{row.length_ratio:13.3f}" for row in rows)
        yield f"  {rows[0].words:<9}{rows[0].sentences:10,}" + "".join(values)


def _format_sentence(sentence: "SentenceScore") -> Iterator[str]:
    yield f"  line {sentence.line:,}: chrF {' and '.join(f'{chrf:.1f}' for chrf in sentence.chrf)}"
    names = ORDINALS if len(sentence.translations) > 1 else ("translation",)
    texts = (
        ("source", sentence.source),
        ("reference", sentence.reference),
        *zip(names, sentence.translations, strict=True),
    )
    for name, value in texts:
        yield from _wrap(value or "-", f"    {name:<13}")


def _format_row(*cells: str) -> str:
    return f"  {cells[0]:<{LABEL - 2}}" + "".join(f"{cell:<{COLUMN}}" for cell in cells[1:]).rstrip()


def _format_value(name: str, *lines: str) -> Iterator[str]:
    for label, line in zip([name, *[""] * len(lines)], lines, strict=False):
        yield f"  {label:<{LABEL - 2}}{line}"


def _fold_paths(paths: str) -> list[str]:
    return [line for path in paths.split(", ") for line in fold(path, WIDTH - LABEL).splitlines()]


def _wrap(value: str, indent: str) -> list[str]:
    """Breaks a text into lines; `indent` begins the first, and as many spaces the others."""
    return textwrap.wrap(value, WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent)) or [indent]


def _wrap_signature(signature: str) -> Iterator[str]:
    """Breaks a signature after one of its parts."""
    line = "  "
    for part in re.findall(r"[^|]+\|?", signature):
        if len(line) + len(part) > WIDTH:
            yield line
            line = "    "
        line += part
    yield line


def format_images(on: str, run: str, result: dict[str, object]) -> Iterator[str]:
    """Yields the lines for a model that classifies images."""
    yield f"{on} of {run}, {result['model']}, {result['images']:,} images, {result['seconds']:.1f} s"
    yield f"  accuracy         {result['accuracy']:.2f} %"
    yield f"  loss             {result['loss']:.4f} per image, without label smoothing"
    if result["chosen_on_this_set"]:
        better = "--set test" if result["held_out"] else "--checkpoint last, or train with data.hold_out"
        yield "  The checkpoint was chosen on these images, so the score is too good."
        yield f"  To compare with others: {better}."
