"""Searches for translations with the trainer's own model and beam search."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from pydantic import TypeAdapter

from lockstep.data.corpus.vocabulary import BOS, EOS, Vocabulary
from lockstep.files import read_json
from lockstep.models.make_model import TranslationModel, make_model
from lockstep.models.model_settings import NamedTranslation, TranslationSettings
from lockstep.run.checkpoint import read_model_config, report_unusable
from lockstep.translate.average import read_weights
from lockstep.translate.search import Decodable, search
from lockstep.translate.search_engine import Hypothesis, Integers, divide, refuse_many
from lockstep.translate.search_settings import SearchSettings
from lockstep.translate.translator import LEAST_LIMIT, UNKNOWN_LIMIT, Translator


class TorchEngine:
    """A model on a device."""

    can_attend = False

    def __init__(self, model: TranslationModel) -> None:
        self.model = model

    @torch.inference_mode()
    def search(
        self,
        sentences: Sequence[Sequence[int]],
        settings: SearchSettings,
        n_best: int = 1,
        with_attention: bool = False,
        report: Callable[[Integers], None] = lambda done: None,
    ) -> list[list[Hypothesis]]:
        """See `Engine`. Attention is never returned."""
        refuse_many(n_best, settings.beam)
        results: list[list[Hypothesis]] = [[] for _ in sentences]
        device, model = self.model.output_weight.device, cast(Decodable[Any, Any], self.model)
        for part in divide(sentences, settings.batch_words):
            packed = torch.tensor([piece for i in part for piece in (*sentences[i], EOS)], device=device)
            lengths = np.array([len(sentences[i]) + 1 for i in part], dtype=np.int64)
            hypotheses = search(model, packed, lengths, settings, BOS, EOS, n_best=n_best)
            for i, own in zip(part, hypotheses, strict=True):
                results[i] = own
            report(part)
        return results


class TorchTranslator(Translator):
    """A translator whose model can be computed with, for example to evaluate its loss."""

    engine: TorchEngine

    @property
    def model(self) -> TranslationModel:
        return self.engine.model


def load_torch_translator(
    folders: Sequence[Path], overrides: dict[str, object] | None = None, device: str = "cpu"
) -> TorchTranslator:
    """Reads a model folder, or several of one run, whose weights are averaged. `overrides` replace settings of the search
    with which the model was evaluated in training."""
    folder = folders[-1]
    with report_unusable(folder):
        config = read_model_config(folder, "vocabulary_size", "translates")
        weights = {name: torch.from_numpy(values) for name, values in read_weights(folders).items()}
        vocabulary = Vocabulary.load(folder / "vocabulary.model", normalizes=config.get("cleaning", 1) > 1)
        model = make_model(
            TypeAdapter[TranslationSettings](NamedTranslation).validate_python(config["model"]),
            config["vocabulary_size"],
        )
        model.load_state_dict(weights)
        recorded = {"normalise": "gnmt"} | config["search"]  # version 0.1.0 had no other formula
        settings = SearchSettings.model_validate(recorded | (overrides or {}))
        source, target = config["languages"]
        limit = _read_limit(folder, config.get("source_longest"))
    return TorchTranslator(TorchEngine(model.to(device).eval()), vocabulary, settings, limit, (source, target))


def _read_limit(folder: Path, longest: int | None) -> int:
    """Returns the number of pieces of the longest source sentence in training. Earlier versions recorded it, with the end
    mark, only in the run folder."""
    if longest is None:
        facts = read_json(folder / ".." / ".." / ".." / "data.json") or {}
        longest = facts.get("sets", {}).get("train", {}).get("source_longest")
    return UNKNOWN_LIMIT if longest is None else max(LEAST_LIMIT, longest - 1)
