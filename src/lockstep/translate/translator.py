"""A trained model that turns text into text."""

import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import numpy as np
import torch

from lockstep.data.vocabulary import Vocabulary
from lockstep.errors import LockstepError
from lockstep.models.packed import Layout
from lockstep.models.settings import TransformerSettings
from lockstep.models.transformer import Transformer
from lockstep.translate.decode import translate_packed
from lockstep.translate.settings import SearchSettings


def find_model(path: Path, checkpoint: str = "best") -> Path:
    """The model folder behind a run directory (its best or last checkpoint), a checkpoint or a model folder."""
    if (path / "model.safetensors").is_file():
        return path
    if (path / "model" / "model.safetensors").is_file():
        return path / "model"
    scored = []
    for manifest in sorted((path / "checkpoints").glob("step-*/manifest.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # a damaged one is not offered
            progress = json.loads(manifest.read_text(encoding="utf-8"))["progress"]
            scored.append((progress["step"], progress["best_step"], manifest.parent))
    if not scored:
        raise LockstepError(
            f"There is no trained model in {path}.", "Name a run folder with a checkpoint, or train one first.", code=2
        )
    last = scored[-1]
    best = next((entry for entry in scored if entry[0] == last[1]), last)
    return (best if checkpoint == "best" else last)[2] / "model"


class Translator:
    """Model, vocabulary and search settings of one checkpoint."""

    def __init__(self, model: Transformer, vocabulary: Vocabulary, search: SearchSettings) -> None:
        self.model, self.vocabulary, self.search = model, vocabulary, search

    @classmethod
    def load(cls, folder: Path, search: dict[str, object] | None = None, device: str = "cpu") -> Self:
        """Reads a model folder; `search` overrides the settings it was trained with."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            weights = load_file(folder / "model.safetensors", device=device)
            vocabulary = Vocabulary.load(folder / "vocabulary.model")
        except (FileNotFoundError, SafetensorError, ValueError) as error:
            raise LockstepError(f"The model in {folder} cannot be read: {error}.", "Use another checkpoint.") from None
        model = Transformer(TransformerSettings.model_validate(config["model"]), config["vocabulary_size"])
        model.load_state_dict(weights)
        return cls(
            model.to(device).eval(), vocabulary, SearchSettings.model_validate(config["search"] | (search or {}))
        )

    @torch.inference_mode()
    def translate(self, texts: list[str]) -> list[str]:
        """Translations in the order of the texts; sentences of similar length are decoded together."""
        ids = self.vocabulary.encode(texts)
        lengths = np.array([len(sentence) + 1 for sentence in ids], dtype=np.int64)
        results = [""] * len(texts)
        for part in _parts(lengths, self.search.batch_words):
            flat = [piece for i in part for piece in (*ids[i], self.vocabulary.eos)]
            layout = Layout.of(lengths[part]).to(self.model.embedding.weight.device)
            source = torch.tensor(flat, device=self.model.embedding.weight.device)
            for i, text in zip(
                part, translate_packed(self.model, source, layout, self.search, self.vocabulary), strict=True
            ):
                results[i] = text if texts[i].strip() else ""
        return results

    def stream(self, lines: Iterable[str], chunk: int) -> Iterator[tuple[str, str]]:
        """(line, translation) for lines as they come, `chunk` of them decoded together."""
        lines = iter(lines)
        while texts := [line.rstrip("\n") for line in itertools.islice(lines, chunk)]:
            yield from zip(texts, self.translate(texts), strict=True)


def _parts(lengths: np.ndarray, words: int) -> Iterator[np.ndarray]:
    order = np.argsort(-lengths, kind="stable")
    cuts = np.flatnonzero(np.diff(np.cumsum(lengths[order]) // words)) + 1
    yield from np.split(order, cuts)
