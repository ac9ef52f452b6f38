"""Searches for translations with CTranslate2, from an export folder. No torch is needed."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.errors import LockstepError, missing
from lockstep.translate.export_folder import VOCABULARY, read_facts
from lockstep.translate.search_engine import Hypothesis, Integers, divide, find_limits, refuse_many
from lockstep.translate.search_settings import SearchSettings
from lockstep.translate.translator import Translator

GROUP_WORDS = 1024
"""Most source words of sentences that CTranslate2 decodes together. Tuned with benchmarks/translate.py."""


class CTranslate2Engine:
    """A model that CTranslate2 has loaded."""

    can_attend = True

    def __init__(self, folder: Path, pieces: list[str], positions: int, device: str = "auto") -> None:
        self._pieces, self._positions = pieces, positions
        self._ids = {piece: i for i, piece in enumerate(pieces)}
        self._cores = len(os.sched_getaffinity(0))
        ctranslate2 = import_ctranslate2()
        try:
            # Every core translates a group of its own. Several threads for one group are faster by at most a third, and
            # ten times slower beside other programs.
            self._translator = ctranslate2.Translator(
                str(folder), device=device, inter_threads=self._cores, intra_threads=1
            )
        except (RuntimeError, ValueError) as error:
            raise LockstepError(
                f"CTranslate2 cannot load the model in {folder}: {error}.", "Export the run again."
            ) from None

    def search(
        self,
        sentences: Sequence[Sequence[int]],
        settings: SearchSettings,
        n_best: int = 1,
        with_attention: bool = False,
        report: Callable[[Integers], None] = lambda done: None,
    ) -> list[list[Hypothesis]]:
        """See `Engine`.

        CTranslate2 has one limit of length for a group. A group gets the highest limit of its sentences, and the few
        sentences whose translation is longer than their own limit are translated again with it.
        """
        refuse_many(n_best, settings.beam)
        results: list[list[Hypothesis]] = [[] for _ in sentences]
        limits = self._find_limits(sentences, settings)
        words = sum(len(sentence) + 1 for sentence in sentences)
        groups = divide(sentences, min(GROUP_WORDS, -(-words // self._cores)))
        for group, best in self._run(groups, sentences, limits, settings, n_best, with_attention):
            for i, hypotheses in zip(group, best, strict=True):
                results[i] = hypotheses
            report(group)
        too_long = [i for i, best in enumerate(results) if any(len(one.ids) >= limits[i] for one in best)]
        again = [
            np.array([i for i in too_long if limits[i] == limit]) for limit in sorted({limits[i] for i in too_long})
        ]
        for group, best in self._run(again, sentences, limits, settings, settings.beam, with_attention):
            for i, hypotheses in zip(group, best, strict=True):
                results[i] = sorted(hypotheses, key=lambda one: len(one.ids) >= limits[i])[:n_best]  # ended ones first
        return results

    def _find_limits(self, sentences: Sequence[Sequence[int]], settings: SearchSettings) -> Integers:
        lengths = np.array([len(sentence) + 1 for sentence in sentences], dtype=np.int64)
        if len(lengths) and lengths.max() > self._positions:
            raise LockstepError(
                f"A sentence of {lengths.max():,} pieces is longer than the {self._positions:,} positions of the export.",
                "Split the text into sentences.",
            )
        return find_limits(lengths, settings).clip(max=self._positions)

    def _run(
        self,
        groups: list[Integers],
        sentences: Sequence[Sequence[int]],
        limits: Integers,
        settings: SearchSettings,
        n_best: int,
        with_attention: bool,
    ) -> Iterator[tuple[Integers, list[list[Hypothesis]]]]:
        """Translates the groups on all cores and yields them in order."""
        pending = [
            self._translator.translate_batch(
                [[self._pieces[piece] for piece in sentences[i]] for i in group],
                asynchronous=True,
                beam_size=settings.beam,
                num_hypotheses=n_best,
                length_penalty=settings.length_penalty,
                max_decoding_length=int(limits[group].max()),
                max_input_length=0,
                min_decoding_length=0,  # 1 would change all scores: it removes the end mark before it normalizes
                return_scores=True,
                return_attention=with_attention,
            )
            for group in groups
        ]
        for group, results in zip(groups, pending, strict=True):
            yield (
                group,
                [self._convert(result.result(), len(sentences[i])) for i, result in zip(group, results, strict=True)],
            )

    def _convert(self, result: Any, source_pieces: int) -> list[Hypothesis]:
        attention = result.attention or [None] * len(result.hypotheses)
        return [
            Hypothesis(
                [self._ids[piece] for piece in pieces], score, _cut_attention(weights, len(pieces), source_pieces)
            )
            for pieces, score, weights in zip(result.hypotheses, result.scores, attention, strict=True)
        ]


def _cut_attention(weights: list[list[float]] | None, pieces: int, source_pieces: int) -> np.ndarray | None:
    """Returns `[pieces, source pieces]`: without the end marks of both sides."""
    if weights is None:
        return None
    return np.array([row[:source_pieces] for row in weights[:pieces]], np.float32).reshape(pieces, source_pieces)


def import_ctranslate2() -> Any:
    """Returns the module, or raises a sentence that names the extra that brings it."""
    try:
        import ctranslate2
    except ImportError:
        raise missing("An exported model", "ctranslate2", "edge") from None
    return ctranslate2


def load_export(folder: Path, overrides: dict[str, object] | None = None, device: str = "auto") -> Translator:
    """Returns the translator of an export folder. `overrides` replace its search settings."""
    facts = read_facts(folder)
    vocabulary = Vocabulary.load(folder / VOCABULARY, normalizes=facts.normalizes)
    settings = SearchSettings.model_validate(facts.search | (overrides or {}))
    if settings.normalise != "length":
        raise LockstepError(
            "CTranslate2 knows only search.normalise=length.", "Leave the setting out for an export.", code=2
        )
    engine = CTranslate2Engine(folder, vocabulary.pieces, facts.positions, device)
    return Translator(engine, vocabulary, settings, facts.limit, facts.languages)
