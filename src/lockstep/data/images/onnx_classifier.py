"""Classifies images with a model that `lockstep export --format onnx` wrote. No torch is needed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, JsonValue

from lockstep.data.images.image_set import Pixels, read_image
from lockstep.errors import LockstepError, missing
from lockstep.export_facts import FACTS, FORMAT, read_export
from lockstep.files import digest

MODEL = "model.onnx"
"""The file of the network."""
INPUT, OUTPUT = "images", "probabilities"
"""The names of the network's input and output."""
IMAGES_AT_ONCE = 256

Probabilities = npt.NDArray[np.float32]


class _Facts(BaseModel):
    """Facts that do not change."""

    model_config = ConfigDict(frozen=True)


class Accuracy(_Facts):
    """The score of the exported checkpoint in training."""

    percent: float
    set: str
    images: int
    is_chosen_on_set: bool  # the checkpoint is the best one on this set, so the score is too good


class ImageParity(_Facts):
    """How far an export computes what torch computes, on the same images."""

    images: int
    set: str  # validation, test, or `random` where the images of the run are not there
    same_class: int  # images to which both give the same class
    largest_difference: float  # of any probability


class TrainingImages(_Facts):
    """The images of a run; `digest` is that of its data.json."""

    name: str
    digest: str
    sets: dict[str, int]  # number of images


class ClassifierFacts(_Facts):
    """The content of `lockstep.json` in an export of an image classifier."""

    format: int = FORMAT
    kind: Literal["onnx"] = "onnx"
    model: dict[str, JsonValue]  # the model settings
    classes: tuple[str, ...]
    shape: tuple[int, int, int]  # channels, height, width
    parameters: int
    run: str
    step: int | None
    data: TrainingImages | None
    accuracy: Accuracy | None
    parity: ImageParity
    bytes: int  # of model.onnx
    digest: str  # of model.onnx, as `sha256:...`
    versions: dict[str, str]


class Classifier(Protocol):
    """A model that classifies images of one size."""

    @property
    def classes(self) -> Sequence[str]: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width."""
        ...

    def compute_probabilities(self, images: Pixels) -> Probabilities:
        """Bytes `[images, channels, height, width]` -> `[images, classes]`."""
        ...


@dataclass(frozen=True)
class Guess:
    """A class that an image may have."""

    name: str
    probability: float


class OnnxClassifier:
    """An export of an image classifier, computed by onnxruntime."""

    def __init__(self, folder: Path, facts: ClassifierFacts) -> None:
        self.folder, self.facts = folder, facts
        self.classes, self.shape = facts.classes, facts.shape
        self._session = open_session(folder / MODEL)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads an export and checks that its network is the one that was exported."""
        facts = read_classifier_facts(folder)
        if not (folder / MODEL).is_file() or digest(folder / MODEL, "sha256") != facts.digest:
            raise LockstepError(f"{folder / MODEL} does not match its digest in {FACTS}.", "Export the run again.")
        return cls(folder, facts)

    def compute_probabilities(self, images: Pixels) -> Probabilities:
        return run_session(self._session, images)


def read_classifier_facts(folder: Path) -> ClassifierFacts:
    """Returns the facts of an exported image classifier."""
    return read_export(folder, "onnx", "classifies", ClassifierFacts)


def open_session(path: Path) -> Any:
    """Returns onnxruntime's session of a network, which has no type. Raises if it cannot be read."""
    try:
        import onnxruntime
    except ImportError:
        raise missing("Classifying with an export", "onnxruntime", "edge") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common class of their own
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LockstepError(f"{path} cannot be used: {reason}.", "Export the run again.") from None


def run_session(session: Any, images: Pixels) -> Probabilities:
    """Bytes `[images, channels, height, width]` -> `[images, classes]`."""
    (probabilities,) = session.run([OUTPUT], {INPUT: np.ascontiguousarray(images)})
    return np.asarray(probabilities, np.float32)


def classify_files(classifier: Classifier, paths: Sequence[Path], top: int = 1) -> Iterator[list[Guess]]:
    """Yields the `top` most probable classes of each image file, the best first. Images are scaled to the size on which the
    model was trained."""
    for begin in range(0, len(paths), IMAGES_AT_ONCE):
        part = paths[begin : begin + IMAGES_AT_ONCE]
        probabilities = classifier.compute_probabilities(
            np.stack([read_image(path, classifier.shape) for path in part])
        )
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]  # [images, top]
        for row, numbers in zip(probabilities, best.tolist(), strict=True):
            yield [Guess(classifier.classes[number], float(row[number])) for number in numbers]
