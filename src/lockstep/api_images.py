"""Loads image classifiers: an ONNX export, or the model of a run, which needs torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from lockstep.data.images.image_set import Pixels
from lockstep.data.images.onnx_classifier import Classifier, OnnxClassifier, Probabilities
from lockstep.errors import missing
from lockstep.export_facts import is_export
from lockstep.notices import warn
from lockstep.remote.fetch_run import fetch_model
from lockstep.remote.place import is_remote
from lockstep.run.checkpoint import find_model

if TYPE_CHECKING:
    import torch

    from lockstep.tasks.classification import ClassificationLoss


@dataclass(frozen=True)
class TorchClassifier:
    """The image classifier of a checkpoint, on a device."""

    module: "ClassificationLoss"
    device: "torch.device"
    classes: list[str]
    shape: tuple[int, ...]

    @classmethod
    def load(cls, folder: Path, device: str = "auto") -> Self:
        """Reads a model folder."""
        try:
            from lockstep.devices import pick_device
            from lockstep.tasks.classification import load
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise missing("A model that is not an export", "torch", "train") from None
        chosen = pick_device(device, 0)
        module, config = load(folder, chosen)
        return cls(module, chosen, config["classes"], config["shape"])

    def compute_probabilities(self, images: Pixels) -> Probabilities:
        import numpy as np
        import torch

        from lockstep.tasks.classification import make_image_batch

        batch = make_image_batch(images, np.zeros(len(images))).to(self.device)
        with torch.inference_mode():
            probabilities: Probabilities = self.module.compute_logits(batch.images).float().softmax(-1).cpu().numpy()
        return probabilities


def load_classifier(place: str, checkpoint: Literal["best", "last"] = "best", device: str = "auto") -> Classifier:
    """Returns the classifier of a run or its address, a checkpoint, a model folder or an ONNX export. A sentence on stderr
    says so if another checkpoint had to be taken."""
    if not is_remote(place) and is_export(Path(place)):
        return OnnxClassifier.load(Path(place))
    model = find_model(fetch_model(place, checkpoint), checkpoint)
    if model.notice is not None:
        warn(model.notice)
    return TorchClassifier.load(model.folder, device)
