"""Writes an image classifier as ONNX, and compares what it computes with torch.

The network takes the bytes of images: the mean and the spread of the training images are inside. It returns probabilities.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.data.images.image_set import Pixels
from lockstep.data.images.onnx_classifier import INPUT, OUTPUT, Probabilities, open_session, run_session
from lockstep.errors import LockstepError, missing
from lockstep.tasks.classification import ClassificationLoss, make_image_batch

PARITY_IMAGES = 100
"""Images on which an export is compared with torch."""


class ProbabilityNetwork(nn.Module):
    """A trained classifier that takes bytes and returns probabilities."""

    def __init__(self, classifier: ClassificationLoss) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        """`[images, channels, height, width]` -> `[images, classes]`."""
        return self.classifier.compute_logits(images).float().softmax(-1)


def write_onnx(classifier: ClassificationLoss, shape: Sequence[int], path: Path) -> None:
    """Writes a classifier in evaluation mode with its weights into one file. It takes any number of images."""
    _check_packages()
    example = torch.zeros(2, *shape, dtype=torch.uint8)  # with a single image, torch would fix the number of images
    try:
        with _be_quiet(), torch.no_grad():
            program = torch.onnx.export(
                ProbabilityNetwork(classifier).eval(),
                (example,),
                dynamo=True,
                verbose=False,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes=({0: INPUT},),
            )
            assert program is not None
            program.save(path, external_data=False)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LockstepError(f"torch could not write the model as ONNX: {reason}.") from error


def _check_packages() -> None:
    """Raises if a package is missing that torch needs to write ONNX, or that computes it."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(package)
        except ImportError:
            raise missing("Exporting an image classifier", package, "onnx") from None


@contextlib.contextmanager
def _be_quiet() -> Iterator[None]:
    """Hides what torch and onnxscript print while they convert a model; none of it concerns the user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def compare_probabilities(classifier: ClassificationLoss, path: Path, images: Pixels) -> tuple[int, float]:
    """Computes the same images with torch and with onnxruntime. Returns the number of images that get the same class, and
    the largest difference of a probability."""
    with torch.inference_mode():
        batch = make_image_batch(images, np.zeros(len(images)))
        ours = cast(Probabilities, ProbabilityNetwork(classifier).eval()(batch.images).numpy())
    theirs = run_session(open_session(path), images)
    same = int((ours.argmax(1) == theirs.argmax(1)).sum())
    return same, float(np.abs(ours - theirs).max())
