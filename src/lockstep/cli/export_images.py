"""Exports the image classifier of a run as ONNX: `lockstep export RUN --format onnx`."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lockstep.cli.common import print_text
from lockstep.errors import LockstepError

if TYPE_CHECKING:
    from lockstep.data.images.image_set import ImageCorpus, ImageFacts
    from lockstep.data.images.onnx_classifier import Accuracy, ClassifierFacts, ImageParity
    from lockstep.run.checkpoint import Checkpoint
    from lockstep.tasks.classification import ClassificationLoss

CARD = "README.md"
MOST_DIFFERENCE = 0.01
"""Largest difference of a probability between torch and an export. Rounding makes about a ten-thousandth of it."""
UNKNOWN_LICENCE = "unknown. Check it where the images come from: it may restrict the use of the model."


@dataclass(frozen=True)
class _TrainedModel:
    """A model folder, and what its checkpoint and its run say of it."""

    folder: Path
    saved: "Checkpoint | None"
    run: Path | None
    data: "ImageFacts | None"  # the run's data.json

    @property
    def evaluated_set(self) -> str:
        """The set on which the run was evaluated: the test images if it has no validation images."""
        return "validation" if self.data is not None and "validation" in self.data["sets"] else "test"

    def find_accuracy(self, is_chosen: bool) -> "Accuracy | None":
        """Returns the accuracy in training; None if this checkpoint was not evaluated. `is_chosen` says that the best
        checkpoint was asked for."""
        from lockstep.data.images.onnx_classifier import Accuracy

        if self.saved is None or self.saved.score is None or self.data is None:
            return None
        return Accuracy(
            percent=self.saved.score,
            set=self.evaluated_set,
            images=self.data["sets"][self.evaluated_set]["images"],
            is_chosen_on_set=is_chosen and self.saved.progress().best_step == self.saved.step,
        )

    def open_images(self) -> "ImageCorpus | None":
        """Opens the images of the run; None if they are not there, or others are in their place."""
        from lockstep.config import load
        from lockstep.data.corpus.remote_copies import fetch_images
        from lockstep.data.images.image_set import ImageCorpus

        if self.run is None or self.data is None:
            return None
        try:
            settings = load(self.run / "config.yaml", []).data
            corpus = (
                None if settings.images is None else ImageCorpus.open(fetch_images(settings.images), settings.hold_out)
            )
        except LockstepError:
            return None
        return corpus if corpus is not None and corpus.facts["digest"] == self.data["digest"] else None


def export_images(run: str, to: Path, checkpoint: Literal["best", "last"], as_json: bool = False) -> None:
    """Writes the image classifier of a run into a folder, with its facts and a model card. Compares it with torch, and
    prints the result. The folder is complete or not written at all."""
    import torch

    from lockstep.cli.common import find_model_folder, print_json
    from lockstep.data.images.onnx_classifier import MODEL
    from lockstep.export_facts import FACTS
    from lockstep.remote.fetch_run import fetch_model
    from lockstep.tasks.classification import load
    from lockstep.tasks.export_onnx import write_onnx
    from lockstep.translate.export_model import replace_folder

    place = fetch_model(run, checkpoint)
    trained = _find_facts(find_model_folder(place, checkpoint))
    classifier, config = load(trained.folder, torch.device("cpu"))
    corpus = trained.open_images()
    with replace_folder(to) as partial:
        write_onnx(classifier, config["shape"], partial / MODEL)
        parity = _check_parity(classifier, partial / MODEL, trained.evaluated_set, corpus, config["shape"])
        facts = _collect_facts(trained, classifier, parity, checkpoint == "best", partial / MODEL)
        (partial / FACTS).write_text(facts.model_dump_json(indent=1) + "\n", encoding="utf-8")
        (partial / CARD).write_text(write_card(facts, _read_licence(corpus)), encoding="utf-8")
    if as_json:
        print_json(facts.model_dump(mode="json") | {"to": str(to)})
    else:
        _print_facts(facts, to)


def _print_facts(facts: "ClassifierFacts", to: Path) -> None:
    step = "unknown" if facts.step is None else f"{facts.step:,}"
    print_text(f"{to}: {len(facts.classes)} classes, {facts.parameters:,} parameters, {facts.bytes / 1e6:,.1f} MB")
    print_text(f"  step {step} of {facts.run}")
    if facts.accuracy is not None:
        print_text(f"  {describe_accuracy(facts.accuracy)}")
    print_text(f"  {describe_parity(facts.parity)}")
    print_text(f"Next: lockstep classify {shlex.quote(str(to))} IMAGE")


def _find_facts(folder: Path) -> _TrainedModel:
    """Finds the checkpoint and the run of a model folder. A model folder that was copied has neither."""
    from lockstep.files import read_json
    from lockstep.run.checkpoint import read_checkpoint
    from lockstep.run.directory import RunDirectory

    saved = read_checkpoint(folder.parent)
    run = RunDirectory(folder.resolve().parents[2])
    if saved is None or not run.config.is_file():
        return _TrainedModel(folder, saved, None, None)
    return _TrainedModel(folder, saved, run.path, read_json(run.data))


def _read_licence(corpus: "ImageCorpus | None") -> str | None:
    """Returns the licence of the images, which the catalog writes beside them."""
    from lockstep.data.catalog.entries import SOURCE
    from lockstep.files import read_json

    return None if corpus is None else (read_json(corpus.folder / SOURCE) or {}).get("licence")


def _check_parity(
    classifier: "ClassificationLoss", path: Path, name: str, corpus: "ImageCorpus | None", shape: tuple[int, ...]
) -> "ImageParity":
    """Compares the export with torch, on images at even distances in a set, or on random ones if there are none. Raises if
    they differ by more than rounding."""
    import numpy as np

    from lockstep.data.images.onnx_classifier import ImageParity
    from lockstep.tasks.export_onnx import PARITY_IMAGES, compare_probabilities

    if corpus is None:
        name, images = "random", np.random.default_rng(0).integers(0, 256, (PARITY_IMAGES, *shape), np.uint8)
    else:
        images = corpus.sets[name].images
        images = images[:: max(1, len(images) // PARITY_IMAGES)][:PARITY_IMAGES]
    same, difference = compare_probabilities(classifier, path, images)
    if not difference <= MOST_DIFFERENCE:
        raise LockstepError(
            f"The export computes something else than torch: a probability differs by {difference:.2g}.",
            "Nothing was written. Please report it, with the versions of torch, onnxscript and onnxruntime.",
        )
    return ImageParity(images=len(images), set=name, same_class=same, largest_difference=difference)


def _collect_facts(
    trained: _TrainedModel,
    classifier: "ClassificationLoss",
    parity: "ImageParity",
    is_chosen: bool,
    path: Path,
) -> "ClassifierFacts":
    """Returns the content of lockstep.json for the network in `path`."""
    import platform
    from importlib.metadata import version

    from lockstep.data.images.onnx_classifier import ClassifierFacts, TrainingImages
    from lockstep.files import digest
    from lockstep.run.checkpoint import read_model_config

    config, data = read_model_config(trained.folder, "classes", "classifies"), trained.data
    packages = ("lockstep-train", "torch", "onnx", "onnxscript", "onnxruntime")
    images = None
    if data is not None:
        sets = {name: part["images"] for name, part in data["sets"].items()}
        images = TrainingImages(name=data["name"], digest=data["digest"], sets=sets)
    return ClassifierFacts(
        model=config["model"],
        classes=config["classes"],
        shape=config["shape"],
        parameters=sum(parameter.numel() for parameter in classifier.parameters()),
        run=trained.folder.name if trained.run is None else trained.run.name,
        step=None if trained.saved is None else trained.saved.step,
        data=images,
        accuracy=trained.find_accuracy(is_chosen),
        parity=parity,
        bytes=path.stat().st_size,
        digest=digest(path, "sha256"),
        versions={"python": platform.python_version()} | {name: version(name) for name in packages},
    )


def describe_accuracy(accuracy: "Accuracy") -> str:
    """Says how good the model was in training."""
    text = f"Accuracy in training: {accuracy.percent:.2f} % of {accuracy.images:,} {accuracy.set} images."
    chosen = " The checkpoint was chosen on these images, so this is too good."
    return text + chosen if accuracy.is_chosen_on_set else text


def describe_parity(parity: "ImageParity") -> str:
    """Says how far the export computes what torch computes."""
    return (
        f"Compared with torch on {parity.images} {parity.set} images: {parity.same_class} get the same class, and "
        f"probabilities differ by at most {parity.largest_difference:.1e}."
    )


def write_card(facts: "ClassifierFacts", licence: str | None) -> str:
    """Returns the model card, as Markdown."""
    from lockstep.explain.formatting import megabytes

    step = "not known" if facts.step is None else f"{facts.step:,}"
    images = "not known"
    if facts.data is not None:
        sets = ", ".join(f"{count:,} {name}" for name, count in facts.data.sets.items())
        images = f"{facts.data.name or 'own images'} ({sets}), digest `{facts.data.digest}`"
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    classes = "\n".join(f"{number}. {name}" for number, name in enumerate(facts.classes))
    return f"""# Image classifier with {len(facts.classes)} classes

A {facts.model["name"]} of depth {facts.model["depth"]} with {facts.parameters:,} parameters, trained with Lockstep.

| | |
|---|---|
| run | `{facts.run}`, step {step} |
| images | {images} |
| licence | {licence or UNKNOWN_LICENCE} |
| accuracy | {"not known" if facts.accuracy is None else describe_accuracy(facts.accuracy)} |
| check | {describe_parity(facts.parity)} |
| size | {megabytes(facts.bytes)}, `{facts.digest}` |
| versions | {versions} |

{_write_usage(facts)}
## Classes

{classes}
"""


def _write_usage(facts: "ClassifierFacts") -> str:
    """Returns the section of the model card that tells how to use the model."""
    from lockstep.data.images.onnx_classifier import INPUT, MODEL, OUTPUT

    channels, height, width = facts.shape
    return f"""## Use

With Lockstep; torch is not needed, and images may have any size:

```
lockstep classify FOLDER photo.jpg --top 3
```

With onnxruntime alone:

```python
import numpy as np
import onnxruntime
from PIL import Image, ImageOps

upright = ImageOps.exif_transpose(Image.open("photo.jpg"))
image = upright.convert("{"L" if channels == 1 else "RGB"}").resize(({width}, {height}))
pixels = np.asarray(image).reshape({height}, {width}, {channels}).transpose(2, 0, 1)
session = onnxruntime.InferenceSession("{MODEL}")
(probabilities,) = session.run(["{OUTPUT}"], {{"{INPUT}": np.ascontiguousarray(pixels[None])}})
print(probabilities[0].argmax())
```

- Input `{INPUT}`: bytes (uint8), `[images, {channels}, {height}, {width}]`, any number of images. The
  network itself subtracts the mean of the training images and divides by their standard deviation.
- Output `{OUTPUT}`: float32, `[images, {len(facts.classes)}]`. Every row adds up to 1.
"""
