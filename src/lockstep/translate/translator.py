"""Translates text: splits lines that are too long, encodes, searches, decodes and joins. No torch is needed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.data.text.languages import uses_spaces
from lockstep.errors import LockstepError
from lockstep.translate.search_engine import Engine, Hypothesis, Integers
from lockstep.translate.search_settings import SearchSettings
from lockstep.translate.split_sentences import Parts, split_to_fit

UNKNOWN_LIMIT = 250
"""Pieces that a model translates at once when its folder does not say: the default of data.max_pieces."""
LEAST_LIMIT = 8
CHUNK_CHARACTERS = 1 << 20
"""Lines are decoded together until they have this many characters."""
COUNTED_AT_ONCE = 4096
LINE_BREAKS = str.maketrans("\r\n", "  ")
"""A model can write them, because every byte is a piece. A line has one line of translation."""


@dataclass(frozen=True)
class Candidate:
    """A possible translation. `score` is its log-probability divided by the length penalty."""

    text: str
    score: float


@dataclass(frozen=True)
class PieceAttention:
    """Which source pieces the model looked at when it wrote each target piece. "▁" begins a word."""

    source: list[str]
    target: list[str]
    weights: npt.NDArray[np.float32]  # [target pieces, source pieces]; a row adds up to at most 1


@dataclass(frozen=True)
class TranslatedLine:
    """The translation of a line. A line that the model cannot translate at once has several parts. Some of its sentences
    may have been divided at clauses or words, and words that are too long were copied."""

    text: str
    parts: int = 1
    cut_sentences: int = 0
    copied_words: int = 0
    is_missing: bool = False
    """Did the model return an empty text for a part that is not empty?"""
    pieces: int = 0
    """Target pieces, with end marks."""
    candidates: tuple[Candidate, ...] = ()
    """The best translations, the best first. In a line with several parts, candidate k consists of the k-th best
    translations of the parts, and its score is their sum."""
    attention: tuple[PieceAttention, ...] = ()
    """One for each part, if it was asked for and is known."""


@dataclass(frozen=True)
class _Part:
    """The translations of one part of a line, the best first."""

    candidates: list[Candidate]
    pieces: int = 0
    attention: PieceAttention | None = None

    def get(self, place: int) -> Candidate:
        """Returns the candidate at this place, or the last one."""
        return self.candidates[min(place, len(self.candidates) - 1)]


class Translator:
    """A model with its vocabulary and search settings. One thread at a time may use it.

    `limit` is the number of pieces of the longest source sentence in training. Models translate longer text badly: most of
    it is left out. So longer lines are split into sentences.
    """

    def __init__(
        self,
        engine: Engine,
        vocabulary: Vocabulary,
        search: SearchSettings,
        limit: int = UNKNOWN_LIMIT,
        languages: tuple[str, str] = ("", ""),
    ) -> None:
        self.engine, self.vocabulary, self.search = engine, vocabulary, search
        self.limit, self.languages = limit, languages

    @property
    def can_attend(self) -> bool:
        """Does the model return attention?"""
        return self.engine.can_attend

    def translate(self, texts: list[str]) -> list[str]:
        """Returns the translations in the order of the texts."""
        return [translation.text for translation in self.translate_each(texts)]

    def translate_each(
        self,
        texts: list[str],
        report: Callable[[int], None] = lambda size: None,
        *,
        n_best: int = 1,
        with_attention: bool = False,
    ) -> list[TranslatedLine]:
        """Returns the translations in the order of the texts, and calls `report` with the UTF-8 bytes of every batch
        of source text that is done."""
        encoded = self._encode(texts)
        split = [self._split(text, len(ids)) for text, ids in zip(texts, encoded, strict=True)]
        sources = [part for parts in split for i, part in enumerate(parts.texts) if i not in parts.untranslatable]
        if len(sources) != len(texts) or any(len(parts.texts) > 1 for parts in split):
            encoded = self._encode(sources)
        targets = iter(self._translate_parts(sources, encoded, report, n_best, with_attention))
        return [self._join(parts, targets, n_best) for parts in split]

    def _join(self, line: Parts, targets: Iterator[_Part], n_best: int) -> TranslatedLine:
        """Takes the translations of the parts from `targets`."""
        parts = [
            _Part([Candidate(text, 0.0)]) if i in line.untranslatable else next(targets)
            for i, text in enumerate(line.texts)
        ]
        best = [part.get(0).text for part in parts]
        is_missing = any(source.strip() and not text.strip() for source, text in zip(line.texts, best, strict=True))
        count = min(n_best, max(len(part.candidates) for part in parts))
        candidates = tuple(self._join_candidates([part.get(place) for part in parts]) for place in range(count))
        return TranslatedLine(
            candidates[0].text,
            len(parts),
            line.cut_sentences,
            len(line.untranslatable),
            is_missing,
            sum(part.pieces for part in parts),
            candidates,
            tuple(part.attention for part in parts if part.attention is not None),
        )

    def _join_candidates(self, candidates: list[Candidate]) -> Candidate:
        if len(candidates) == 1:
            return candidates[0]
        joint = " " if uses_spaces(self.languages[1]) else ""
        text = joint.join(filter(None, (candidate.text.strip() for candidate in candidates)))
        return Candidate(text, sum(candidate.score for candidate in candidates))

    def _split(self, text: str, size: int) -> Parts:
        if size <= self.limit:
            return Parts([text])
        language = self.languages[0]
        return split_to_fit(text, self.limit, self._count_pieces, language, uses_spaces(language))

    def _encode(self, texts: list[str]) -> list[list[int]]:
        groups = (texts[i : i + COUNTED_AT_ONCE] for i in range(0, len(texts), COUNTED_AT_ONCE))
        return [ids for group in groups for ids in self.vocabulary.encode(group)]

    def _count_pieces(self, texts: list[str]) -> list[int]:
        return [len(ids) for ids in self._encode(texts)]

    def _translate_parts(
        self,
        texts: list[str],
        encoded: list[list[int]],
        report: Callable[[int], None],
        n_best: int,
        with_attention: bool,
    ) -> list[_Part]:
        """Translates texts that fit. An empty text stays empty."""

        def report_bytes(done: Integers) -> None:
            report(sum(len(texts[i].encode()) for i in done))

        searched = self.engine.search(encoded, self.search, n_best, with_attention, report_bytes)
        decoded = iter(self.vocabulary.decode([one.ids for hypotheses in searched for one in hypotheses]))
        return [
            self._make_part(text, ids, [(next(decoded), one) for one in hypotheses])
            for text, ids, hypotheses in zip(texts, encoded, searched, strict=True)
        ]

    def _make_part(self, source: str, ids: list[int], hypotheses: list[tuple[str, Hypothesis]]) -> _Part:
        if not source.strip():
            return _Part([Candidate("", 0.0)])
        candidates = [Candidate(text.translate(LINE_BREAKS), one.score) for text, one in hypotheses]
        _, best = hypotheses[0]
        attention = None
        if best.attention is not None:
            pieces = self.vocabulary.to_pieces(ids), self.vocabulary.to_pieces(best.ids)
            attention = PieceAttention(*pieces, best.attention)
        return _Part(candidates, len(best.ids) + 1, attention)

    def stream(
        self, lines: Iterable[str], chunk: int, report: Callable[[int], None] = lambda size: None, n_best: int = 1
    ) -> Iterator[tuple[str, TranslatedLine]]:
        """Yields (line, translation) as lines arrive; up to `chunk` lines are decoded together. If reading fails, the lines
        before are translated first."""
        texts: list[str] = []
        characters, failure = 0, None
        try:
            for line in lines:
                texts.append(line.rstrip("\r\n"))
                characters += len(line)
                if len(texts) == chunk or characters >= CHUNK_CHARACTERS:
                    yield from zip(texts, self.translate_each(texts, report, n_best=n_best), strict=True)
                    texts, characters = [], 0
        except LockstepError as error:
            failure = error
        yield from zip(texts, self.translate_each(texts, report, n_best=n_best), strict=True)
        if failure is not None:
            raise failure
