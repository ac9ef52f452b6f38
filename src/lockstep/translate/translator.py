"""Translates text with a trained model."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from pydantic import TypeAdapter

from lockstep.data.corpus.batches import split_by_words
from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.data.text.languages import uses_spaces
from lockstep.files import read_json
from lockstep.models.make_model import TranslationModel, make_model
from lockstep.models.model_settings import NamedTranslation, TranslationSettings
from lockstep.models.packed import Layout
from lockstep.run.checkpoint import read_model_config, report_unusable
from lockstep.translate.decode import translate_packed
from lockstep.translate.search_settings import SearchSettings
from lockstep.translate.split_sentences import Parts, split_to_fit

UNKNOWN_LIMIT = 250
"""Pieces that a model translates at once when its folder does not say: the default of data.max_pieces."""
LEAST_LIMIT = 8
CHUNK_CHARACTERS = 1 << 18
"""Lines are decoded together until they have this many characters."""
COUNTED_AT_ONCE = 4096
LINE_BREAKS = str.maketrans("\r\n", "  ")
"""A model can write them, because every byte is a piece. A line has one line of translation."""


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


class Translator:
    """The model, vocabulary and search settings of one checkpoint.

    `limit` is the number of pieces of the longest source sentence in training. Models translate longer text badly: most of
    it is left out. So longer lines are split into sentences.
    """

    def __init__(
        self,
        model: TranslationModel,
        vocabulary: Vocabulary,
        search: SearchSettings,
        limit: int = UNKNOWN_LIMIT,
        languages: tuple[str, str] = ("", ""),
    ) -> None:
        self.model, self.vocabulary, self.search = model, vocabulary, search
        self.limit, self.languages = limit, languages

    @classmethod
    def load(cls, folder: Path, search: dict[str, object] | None = None, device: str = "cpu") -> Self:
        """Reads a model folder. `search` overrides the search settings it was trained with."""
        from safetensors.torch import load_file

        with report_unusable(folder):
            config = read_model_config(folder, "vocabulary_size", "translates")
            weights = load_file(folder / "model.safetensors", device=device)
            vocabulary = Vocabulary.load(folder / "vocabulary.model", normalizes=config.get("cleaning", 1) > 1)
            model = make_model(
                TypeAdapter[TranslationSettings](NamedTranslation).validate_python(config["model"]),
                config["vocabulary_size"],
            )
            model.load_state_dict(weights)
            settings = SearchSettings.model_validate(config["search"] | (search or {}))
            source, target = config["languages"]
            limit = _read_limit(folder, config.get("source_longest"))
        return cls(model.to(device).eval(), vocabulary, settings, limit, (source, target))

    def translate(self, texts: list[str]) -> list[str]:
        """Returns the translations in the order of the texts."""
        return [translation.text for translation in self.translate_each(texts)]

    def translate_each(
        self, texts: list[str], report: Callable[[int], None] = lambda size: None
    ) -> list[TranslatedLine]:
        """Returns the translations in the order of the texts, and calls `report` with the UTF-8 bytes of every batch
        of source text that is done."""
        split = [self._split(text, size) for text, size in zip(texts, self._count_pieces(texts), strict=True)]
        sources = [part for parts in split for i, part in enumerate(parts.texts) if i not in parts.untranslatable]
        targets = iter(self._translate_parts(sources, report))
        return [self._join(parts, targets) for parts in split]

    def _join(self, parts: Parts, targets: Iterator[str]) -> TranslatedLine:
        """Takes the translations of the parts from `targets`."""
        texts = [part if i in parts.untranslatable else next(targets) for i, part in enumerate(parts.texts)]
        is_missing = any(part.strip() and not text.strip() for part, text in zip(parts.texts, texts, strict=True))
        text = texts[0]
        if len(texts) > 1:
            joint = " " if uses_spaces(self.languages[1]) else ""
            text = joint.join(filter(None, map(str.strip, texts)))
        return TranslatedLine(text, len(texts), parts.cut_sentences, len(parts.untranslatable), is_missing)

    def _split(self, text: str, size: int) -> Parts:
        if size <= self.limit:
            return Parts([text])
        language = self.languages[0]
        return split_to_fit(text, self.limit, self._count_pieces, language, uses_spaces(language))

    def _count_pieces(self, texts: list[str]) -> list[int]:
        groups = (texts[i : i + COUNTED_AT_ONCE] for i in range(0, len(texts), COUNTED_AT_ONCE))
        return [len(ids) for group in groups for ids in self.vocabulary.encode(group)]

    @torch.inference_mode()
    def _translate_parts(self, texts: list[str], report: Callable[[int], None]) -> list[str]:
        """Translates texts that fit. Those of similar length are decoded together."""
        ids = self.vocabulary.encode(texts)
        lengths = np.array([len(sentence) + 1 for sentence in ids], dtype=np.int64)
        results = [""] * len(texts)
        longest_first = np.argsort(-lengths, kind="stable")
        for part in split_by_words(longest_first, lengths, self.search.batch_words):
            packed = [piece for i in part for piece in (*ids[i], self.vocabulary.eos)]
            layout = Layout.from_lengths(lengths[part]).to(self.model.output_weight.device)
            source = torch.tensor(packed, device=self.model.output_weight.device)
            translations = translate_packed(self.model, source, layout, self.search, self.vocabulary)
            for i, text in zip(part, translations, strict=True):
                results[i] = text.translate(LINE_BREAKS) if texts[i].strip() else ""
            report(sum(len(texts[i].encode()) for i in part))
        return results

    def stream(
        self, lines: Iterable[str], chunk: int, report: Callable[[int], None] = lambda size: None
    ) -> Iterator[tuple[str, TranslatedLine]]:
        """Yields (line, translation) as lines arrive; up to `chunk` lines are decoded together."""
        texts: list[str] = []
        characters = 0
        for line in lines:
            texts.append(line.rstrip("\r\n"))
            characters += len(line)
            if len(texts) == chunk or characters >= CHUNK_CHARACTERS:
                yield from zip(texts, self.translate_each(texts, report), strict=True)
                texts, characters = [], 0
        yield from zip(texts, self.translate_each(texts, report), strict=True)


def _read_limit(folder: Path, longest: int | None) -> int:
    """Returns the number of pieces of the longest source sentence in training. Earlier versions recorded it, with the end
    mark, only in the run folder."""
    if longest is None:
        facts = read_json(folder / ".." / ".." / ".." / "data.json") or {}
        longest = facts.get("sets", {}).get("train", {}).get("source_longest")
    return UNKNOWN_LIMIT if longest is None else max(LEAST_LIMIT, longest - 1)
