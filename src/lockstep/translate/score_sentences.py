"""Scores by the length of the source, and of single sentences: which are worst, and where two systems differ most."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lockstep.data.text.lines import Lines

LENGTH_BOUNDS = (0, 10, 20, 30, 50)
"""Source words up to which a group of sentences goes; the last group has no bound."""


@dataclass(frozen=True)
class LengthScore:
    """The scores of the sentences whose source length is in this range."""

    words: str  # such as "11-20"
    sentences: int
    sacrebleu: float
    chrf: float
    length_ratio: float  # words of the translations divided by words of the references


@dataclass(frozen=True)
class SentenceScore:
    """The translations of one sentence by each system, with their chrF from 0 to 100."""

    line: int  # from 1
    source: str
    reference: str
    translations: tuple[str, ...]
    chrf: tuple[float, ...]


def score_by_length(
    sources: Sequence[str], references: Sequence[str], translations: Sequence[str], language: str
) -> list[LengthScore]:
    """Returns the scores of the sentences in each group of lengths, without empty groups. In a source language without
    spaces, two characters count as a word. An empty source belongs to the shortest."""
    from sacrebleu.metrics import BLEU, CHRF

    words = Lines.normalize("".join(f"{source}\n" for source in sources)).count_words(language)
    groups = np.searchsorted(LENGTH_BOUNDS[1:], words)  # [sentences]
    labels = [f"{low + 1}-{high}" for low, high in pairwise(LENGTH_BOUNDS)] + [f"over {LENGTH_BOUNDS[-1]}"]
    rows = []
    for group, label in enumerate(labels):
        chosen = np.flatnonzero(groups == group).tolist()
        if chosen:
            own, wanted = [translations[i] for i in chosen], [[references[i] for i in chosen]]
            bleu, chrf = BLEU().corpus_score(own, wanted), CHRF().corpus_score(own, wanted)
            rows.append(LengthScore(label, len(chosen), float(bleu.score), float(chrf.score), float(bleu.ratio)))
    return rows


def score_sentences(
    sources: Sequence[str], references: Sequence[str], systems: Sequence[Sequence[str]]
) -> list[SentenceScore]:
    """Returns the chrF of every sentence by each system."""
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    scores = []
    for line, (source, reference, *translations) in enumerate(zip(sources, references, *systems, strict=True), start=1):
        chrf = tuple(float(metric.sentence_score(one, [reference]).score) for one in translations)
        scores.append(SentenceScore(line, source, reference, tuple(translations), chrf))
    return scores


def pick_worst(sentences: Sequence[SentenceScore], count: int) -> list[SentenceScore]:
    """Returns the sentences with the lowest chrF, on average over the systems, the worst first. A sentence that every
    system translated like the reference is not among them."""
    wrong = [one for one in sentences if any(text != one.reference for text in one.translations)]
    return sorted(wrong, key=lambda one: sum(one.chrf))[:count]


def pick_most_different(sentences: Sequence[SentenceScore], count: int) -> list[SentenceScore]:
    """Returns the sentences where the chrF of two systems differs most, the largest difference first."""
    different = [one for one in sentences if one.chrf[0] != one.chrf[1]]
    return sorted(different, key=lambda one: -abs(one.chrf[1] - one.chrf[0]))[:count]
