"""The Python interface: `lockstep.load` returns a trained model that translates text or classifies images."""

import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, overload

from lockstep.api_images import TorchClassifier
from lockstep.api_info import ModelInfo, describe_classifier, describe_translator
from lockstep.api_places import Place, name_place
from lockstep.data.images.onnx_classifier import Classifier, Guess, OnnxClassifier, classify_files
from lockstep.errors import LockstepError
from lockstep.export_facts import is_export, read_kind
from lockstep.files import read_json
from lockstep.notices import warn
from lockstep.remote.fetch_run import fetch_model
from lockstep.remote.place import is_remote
from lockstep.run.checkpoint import find_model
from lockstep.translate.average import find_models
from lockstep.translate.load_model import load_translator
from lockstep.translate.search_settings import SearchSettings
from lockstep.translate.translator import Candidate, Translator


@dataclass(frozen=True)
class TextScores:
    """How well translations agree with references: BLEU and chrF of sacreBLEU, from 0 to 100, with their signatures."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    sentences: int


class Model:
    """A trained model, ready to use. `lockstep.load` makes it. Several threads may share it: they take turns."""

    info: ModelInfo
    """What is known about the model."""

    def __init__(self, info: ModelInfo, translator: Translator | None, classifier: Classifier | None) -> None:
        self.info, self._translator, self._classifier = info, translator, classifier
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<lockstep.Model {self.info.path}: {self.info}>"

    @overload
    def translate(self, text: str, *, beam: int | None = None, length_penalty: float | None = None) -> str: ...
    @overload
    def translate(
        self, text: list[str] | tuple[str, ...], *, beam: int | None = None, length_penalty: float | None = None
    ) -> list[str]: ...
    @overload
    def translate(
        self, text: str, *, n_best: int, beam: int | None = None, length_penalty: float | None = None
    ) -> list[Candidate]: ...
    @overload
    def translate(
        self,
        text: list[str] | tuple[str, ...],
        *,
        n_best: int,
        beam: int | None = None,
        length_penalty: float | None = None,
    ) -> list[list[Candidate]]: ...

    def translate(
        self,
        text: str | list[str] | tuple[str, ...],
        *,
        n_best: int | None = None,
        beam: int | None = None,
        length_penalty: float | None = None,
    ) -> str | list[str] | list[Candidate] | list[list[Candidate]]:
        """Translates a text, or each text of a list. Text that is longer than any sentence in training is translated
        sentence by sentence.

        `beam` and `length_penalty` replace the search settings of the run. With `n_best`, the result for a text is
        the list of its `n_best` translations with scores, the best first; without `beam`, the beam is at least `n_best`.
        """
        translator = self._get_translator()
        texts = _list_texts(text)
        search = _change_search(translator.search, n_best, beam, length_penalty)
        changed = Translator(translator.engine, translator.vocabulary, search, translator.limit, translator.languages)
        with self._lock:
            lines = changed.translate_each(texts, n_best=n_best or 1)
        if n_best is None:
            return lines[0].text if isinstance(text, str) else [line.text for line in lines]
        lists = [list(line.candidates) for line in lines]
        return lists[0] if isinstance(text, str) else lists

    def score(
        self, sources: list[str] | tuple[str, ...], references: list[str] | tuple[str, ...], *, beam: int | None = None
    ) -> TextScores:
        """Translates the sources and compares the result with the references, one for each."""
        from lockstep.translate.scores import compute_bleu, compute_chrf

        texts, expected = _list_texts(sources), _list_texts(references)
        if len(texts) != len(expected) or not expected:
            raise LockstepError(
                f"There are {len(texts)} source sentences and {len(expected)} references.",
                "Give a list of source sentences and a list with a reference for each.",
                code=2,
            )
        translations = self.translate(texts, beam=beam)
        (bleu, bleu_signature), (chrf, chrf_signature) = (
            compute(translations, expected) for compute in (compute_bleu, compute_chrf)
        )
        return TextScores(bleu, chrf, bleu_signature, chrf_signature, len(expected))

    @overload
    def classify(self, images: Place, *, top: int = 1) -> list[Guess]: ...
    @overload
    def classify(self, images: Sequence[Path] | list[str] | tuple[str, ...], *, top: int = 1) -> list[list[Guess]]: ...

    def classify(
        self, images: Place | Sequence[Path] | list[str] | tuple[str, ...], *, top: int = 1
    ) -> list[Guess] | list[list[Guess]]:
        """Returns the `top` most probable classes of an image file, or of each file of a list, the best first. Images may
        have any size: they are scaled to that of the training."""
        if self._classifier is None:
            remedy = "Use `translate`, or load a run that was trained on images."
            raise LockstepError(
                f"The model in {self.info.path} translates text: it classifies nothing.", remedy, code=2
            )
        if top < 1:
            raise LockstepError(f"top={top} asks for no class.", "Use 1 or more.", code=2)
        places = [images] if isinstance(images, str | os.PathLike) else images
        with self._lock:
            guesses = list(classify_files(self._classifier, [Path(image).expanduser() for image in places], top))
        return guesses[0] if isinstance(images, str | os.PathLike) else guesses

    def _get_translator(self) -> Translator:
        if self._translator is None:
            remedy = "Use `classify`, or load a run that was trained on text."
            raise LockstepError(f"The model in {self.info.path} classifies images: it translates nothing.", remedy, 2)
        return self._translator


def load(
    place: Place,
    *,
    checkpoint: Literal["best", "last"] = "best",
    average: int = 1,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> Model:
    """Loads a model from a run or its address, a checkpoint, a model folder or an export.

    Of a run, `checkpoint` chooses the one with the best score or the newest. With `average=N`, the weights are the mean
    of the N best or N newest checkpoints. `device` is `cpu`, `cuda`, or `auto` for a GPU if there is one.
    """
    name = name_place(place, "load")
    _check_choice("checkpoint", checkpoint, ("best", "last"))
    _check_choice("device", device, ("auto", "cpu", "cuda"))
    if average < 1:
        raise LockstepError(f"average={average} leaves no checkpoint.", "Use 1 or more.", code=2)
    if not is_remote(name) and is_export(Path(name)):
        return _load_export(Path(name), average, device)
    local = fetch_model(name, checkpoint, average)
    model = find_model(local, checkpoint)
    if model.notice is not None:
        warn(model.notice)
    config = read_json(model.folder / "config.json") or {}
    if "classes" in config:
        _refuse_average(name, average)
        classifier = TorchClassifier.load(model.folder, device)
        return Model(describe_classifier(classifier, model.folder), None, classifier)
    if "vocabulary_size" not in config:
        remedy = "`lockstep.load` is for translation models and image classifiers."
        raise LockstepError(f"{name} is a model of another task.", remedy, code=2)
    folders, origin = [model.folder], model.folder
    if average > 1:
        folders, origin = find_models(local, checkpoint, average)[0], local
    translator = load_translator(origin, checkpoint=checkpoint, average=average, device=device)
    return Model(describe_translator(translator, folders), translator, None)


def _load_export(folder: Path, average: int, device: str) -> Model:
    if read_kind(folder) == "onnx":
        _refuse_average(str(folder), average)
        classifier = OnnxClassifier.load(folder)
        return Model(describe_classifier(classifier, folder), None, classifier)
    translator = load_translator(folder, average=average, device=device)
    return Model(describe_translator(translator, [folder]), translator, None)


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise LockstepError(f"{name}={value!r} is unknown.", f"Use one of: {', '.join(choices)}.", code=2)


def _refuse_average(name: str, average: int) -> None:
    if average > 1:
        raise LockstepError(
            f"{name} classifies images, and only translation models are averaged.", "Leave `average` out.", code=2
        )


def _list_texts(text: object) -> list[str]:
    """Returns a text or a list of texts as a list. Raises if something else is among them."""
    texts: list[str] = []
    for one in text if isinstance(text, Iterable) and not isinstance(text, str) else [text]:
        if not isinstance(one, str):
            remedy = "Give a text or a list of texts."
            raise LockstepError(f"Only text can be translated, and {one!r} is not.", remedy, code=2)
        texts.append(one)
    return texts


def _change_search(
    search: SearchSettings, n_best: int | None, beam: int | None, length_penalty: float | None
) -> SearchSettings:
    """Returns search settings with these changes; what is None stays."""
    for name, value in (("n_best", n_best), ("beam", beam)):
        if value is not None and value < 1:
            raise LockstepError(f"{name}={value} is too small.", "Use 1 or more.", code=2)
    if length_penalty is not None and not length_penalty >= 0.0:
        raise LockstepError(f"length_penalty={length_penalty} is negative.", "Use 0 or more.", code=2)
    changes: dict[str, object] = {"beam": max(search.beam, n_best or 1) if beam is None else beam}
    if length_penalty is not None:
        changes["length_penalty"] = length_penalty
    return search.model_copy(update=changes)
