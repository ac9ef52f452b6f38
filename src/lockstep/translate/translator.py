"""Translates text with a trained model."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import numpy as np
import torch
from pydantic import TypeAdapter

from lockstep.data.corpus.batches import split_by_words
from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.models.make_model import TranslationModel, make_model
from lockstep.models.model_settings import NamedTranslation, TranslationSettings
from lockstep.models.packed import Layout
from lockstep.run.checkpoint import read_model_config, report_unusable
from lockstep.translate.decode import translate_packed
from lockstep.translate.search_settings import SearchSettings


class Translator:
    """The model, vocabulary and search settings of one checkpoint."""

    def __init__(self, model: TranslationModel, vocabulary: Vocabulary, search: SearchSettings) -> None:
        self.model, self.vocabulary, self.search = model, vocabulary, search

    @classmethod
    def load(cls, folder: Path, search: dict[str, object] | None = None, device: str = "cpu") -> Self:
        """Reads a model folder. `search` overrides the search settings it was trained with."""
        from safetensors.torch import load_file

        with report_unusable(folder):
            config = read_model_config(folder, "vocabulary_size", "translates")
            weights = load_file(folder / "model.safetensors", device=device)
            vocabulary = Vocabulary.load(folder / "vocabulary.model")
            model = make_model(
                TypeAdapter[TranslationSettings](NamedTranslation).validate_python(config["model"]),
                config["vocabulary_size"],
            )
            model.load_state_dict(weights)
            settings = SearchSettings.model_validate(config["search"] | (search or {}))
        return cls(model.to(device).eval(), vocabulary, settings)

    @torch.inference_mode()
    def translate(self, texts: list[str]) -> list[str]:
        """Returns the translations in the order of the texts. Sentences of similar length are decoded together."""
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
                results[i] = text if texts[i].strip() else ""
        return results

    def stream(self, lines: Iterable[str], chunk: int) -> Iterator[tuple[str, str]]:
        """Yields (line, translation) as lines arrive; `chunk` lines are decoded together."""
        lines = iter(lines)
        while texts := [line.rstrip("\r\n") for line in itertools.islice(lines, chunk)]:
            yield from zip(texts, self.translate(texts), strict=True)
