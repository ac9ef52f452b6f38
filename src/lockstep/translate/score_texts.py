"""Scores the translations of one or two systems on the same text, and compares them."""

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.translate.compare_systems import ScoreDifference
from lockstep.translate.score_sentences import (
    LengthScore,
    SentenceScore,
    pick_most_different,
    pick_worst,
    score_by_length,
    score_sentences,
)
from lockstep.translate.scores import CorpusScore, TextFormat, TextMetric, check_resamples, list_metrics, score_systems


@dataclass(frozen=True)
class ParallelText:
    """A source text and its reference translation, sentence by sentence."""

    name: str
    sources: list[str]
    references: list[str]
    languages: tuple[str, str]


@dataclass(frozen=True)
class ScoringSettings:
    """What to score: the format of the text, bootstrap resamples (0: no intervals), and how many sentences to show."""

    text_format: TextFormat = "plain"
    resamples: int = 1000
    shown_sentences: int = 5


@dataclass(frozen=True)
class TextEvaluation:
    """The scores of one or two systems on the same text."""

    metrics: list[TextMetric]
    scores: list[dict[str, CorpusScore]]  # of each system, by the key of the metric
    differences: list[ScoreDifference]  # between two systems, by metric
    by_length: list[list[LengthScore]]  # of each system
    worst: list[SentenceScore]
    most_different: list[SentenceScore]  # between two systems


def prepare_scoring(text: ParallelText, settings: ScoringSettings) -> list[TextMetric]:
    """Returns the metrics. Raises if they cannot be computed, so call it before the text is translated."""
    check_resamples(len(text.sources), settings.resamples)
    return list_metrics(settings.text_format, text.languages[1])


def evaluate_texts(
    text: ParallelText, systems: Sequence[Sequence[str]], metrics: list[TextMetric], settings: ScoringSettings
) -> TextEvaluation:
    """Scores the translations of one or two systems."""
    scores: list[dict[str, CorpusScore]] = [{} for _ in systems]
    differences = []
    for metric in metrics:
        own, p_value = score_systems(metric, systems, text.references, settings.resamples)
        for system, score in zip(scores, own, strict=True):
            system[metric.key] = score
        if len(systems) > 1:
            differences.append(ScoreDifference(metric.key, metric.title, own[1].value - own[0].value, p_value))
    sentences = score_sentences(text.sources, text.references, systems) if settings.shown_sentences else []
    return TextEvaluation(
        metrics,
        scores,
        differences,
        [score_by_length(text.sources, text.references, system, text.languages[0]) for system in systems],
        pick_worst(sentences, settings.shown_sentences),
        pick_most_different(sentences, settings.shown_sentences) if len(systems) > 1 else [],
    )
