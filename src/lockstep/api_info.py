"""What is known about a trained model: its size, where it comes from, and how good it was in training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lockstep.api_images import TorchClassifier
from lockstep.data.images.onnx_classifier import MODEL, Classifier, OnnxClassifier
from lockstep.export_facts import is_export
from lockstep.files import read_json
from lockstep.run.checkpoint import read_checkpoint
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Line, parse_line, worker_file
from lockstep.translate.export_folder import read_facts
from lockstep.translate.translator import Translator


@dataclass(frozen=True)
class ModelInfo:
    """Facts about a model. What is not known, or does not apply, is None or empty."""

    path: Path
    """The folder with the model's files."""
    task: Literal["translation", "classification"]
    kind: str
    """transformer, lstm or resnet, computed by torch; ctranslate2 or onnx for exports."""
    parameters: int
    bytes: int
    """Size of the model's files."""
    languages: tuple[str, str] | None = None
    """The codes of the source and the target language."""
    vocabulary_size: int | None = None
    longest_source: int | None = None
    """Pieces of the longest source sentence in training. Longer text is translated sentence by sentence."""
    classes: tuple[str, ...] = ()
    image_shape: tuple[int, ...] = ()
    """Channels, height and width of the images."""
    step: int | None = None
    """The step of the checkpoint; the last one of several that were averaged."""
    averaged: int = 1
    """The number of checkpoints whose mean this model is."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The scores of this checkpoint in training, by name, such as loss, sacrebleu and accuracy."""
    signature: str = ""
    """The signature of the sacreBLEU score."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions of the packages with which it was trained, or exported."""

    def __str__(self) -> str:
        """One line with the facts that matter most."""
        parts = [self.kind, f"{self.parameters:,} parameters"]
        if self.languages is not None:
            parts.insert(1, " to ".join(self.languages))
        if self.classes:
            parts.insert(1, f"{len(self.classes)} classes")
        if self.averaged > 1:
            parts.append(f"mean of {self.averaged} checkpoints")
        elif self.step is not None:
            parts.append(f"step {self.step:,}")
        parts += [
            f"{name} {self.scores[name]:.2f}" for name in ("sacrebleu", "accuracy") if name in (self.scores or {})
        ]
        return ", ".join(parts)


def describe_translator(translator: Translator, folders: Sequence[Path]) -> ModelInfo:
    """Describes a translation model. `folders` are its export or model folder, or several that were averaged."""
    if is_export(folders[0]):
        return _describe_export(translator, folders[0])
    config = _read_config(folders[-1])
    return ModelInfo(
        path=folders[-1],
        task="translation",
        kind=_name_model(config),
        parameters=_count_weights(folders[-1]),
        bytes=_sum_bytes(folders[-1]),
        languages=translator.languages,
        vocabulary_size=translator.vocabulary.size,
        longest_source=translator.limit,
        **_describe_training(folders),
    )


def _describe_export(translator: Translator, folder: Path) -> ModelInfo:
    facts = read_facts(folder)
    signature = facts.scores.get("signature")
    return ModelInfo(
        path=folder,
        task="translation",
        kind=facts.kind,
        parameters=facts.parameters,
        bytes=_sum_bytes(folder),
        languages=translator.languages,
        vocabulary_size=translator.vocabulary.size,
        longest_source=translator.limit,
        step=max(facts.steps, default=None),
        averaged=max(1, len(facts.steps)),
        scores=_select_numbers(facts.scores),
        signature=signature if isinstance(signature, str) else "",
        versions=facts.versions,
    )


def describe_classifier(classifier: Classifier, folder: Path) -> ModelInfo:
    """Describes an image classifier from its export or model folder."""
    if isinstance(classifier, OnnxClassifier):
        facts = classifier.facts
        return ModelInfo(
            path=folder,
            task="classification",
            kind=facts.kind,
            parameters=facts.parameters,
            bytes=(folder / MODEL).stat().st_size,
            classes=facts.classes,
            image_shape=facts.shape,
            step=facts.step,
            scores={} if facts.accuracy is None else {"accuracy": facts.accuracy.percent},
            versions=facts.versions,
        )
    assert isinstance(classifier, TorchClassifier)
    return ModelInfo(
        path=folder,
        task="classification",
        kind=_name_model(_read_config(folder)),
        parameters=sum(parameter.numel() for parameter in classifier.module.parameters()),
        bytes=_sum_bytes(folder),
        classes=tuple(classifier.classes),
        image_shape=classifier.shape,
        **_describe_training([folder]),
    )


def _read_config(folder: Path) -> dict[str, Any]:
    return read_json(folder / "config.json") or {}


def _name_model(config: dict[str, Any]) -> str:
    return str(config.get("model", {}).get("name", "transformer"))  # version 0.1.0 did not name its first model


def _count_weights(folder: Path) -> int:
    """Returns the number of weights in a model folder, from the head of its file."""
    from math import prod

    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        return sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


def _sum_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _describe_training(folders: Sequence[Path]) -> dict[str, Any]:
    """Returns the facts that the checkpoints and the run of model folders have. A mean of several has no scores."""
    checkpoints = [saved for folder in folders if (saved := read_checkpoint(folder.parent)) is not None]
    if not checkpoints:
        return {"averaged": len(folders)}
    step, run = max(saved.step for saved in checkpoints), RunDirectory(checkpoints[0].path.parent.parent)
    line = (_find_evaluation(run, step) if len(folders) == 1 else None) or {}
    environment = read_json(run.environment) or {}
    return {
        "step": step,
        "averaged": len(folders),
        "scores": _select_numbers(line.get("scores", {})),
        "signature": str(line.get("signature") or ""),
        "versions": environment.get("versions", {}),
    }


def _find_evaluation(run: RunDirectory, step: int) -> Line | None:
    """Returns the last evaluation of a step in worker 0's journal. Other lines, of which there may be many, are not
    parsed."""
    journal, result = worker_file(run.journal, 0), None
    if not journal.exists():
        return None
    with journal.open("rb") as file:
        for raw in file:
            if b'"evaluation"' in raw:
                line = parse_line(raw)
                if line is not None and line["kind"] == "evaluation" and line.get("step") == step:
                    result = line
    return result


def _select_numbers(values: Mapping[str, object]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
