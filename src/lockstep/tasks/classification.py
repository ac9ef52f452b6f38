"""Image classification: images with labels, a residual network, cross-entropy, accuracy."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep import faults
from lockstep.data.corpus.batches import GlobalBatch, Order, Position
from lockstep.data.data_settings import AugmentSettings, BatchSettings
from lockstep.data.images.augment import Draws, augment
from lockstep.data.images.image_set import ImageCorpus, ImageSet
from lockstep.errors import LockstepError
from lockstep.models.model_settings import ResNetSettings
from lockstep.models.resnet import ResNet
from lockstep.run.checkpoint import read_model_config, report_unusable
from lockstep.tasks.task import Scores, total
from lockstep.team import Team

EVALUATED_AT_ONCE = 500
"""Images."""


@dataclass
class ImageBatch:
    """Images as bytes; their colours lie together in memory, as convolutions on CPUs like them."""

    images: Tensor  # [images, channels, height, width]
    labels: Tensor  # [images]

    @property
    def target_words(self) -> int:
        return len(self.labels)

    @property
    def source_words(self) -> int:
        return len(self.labels)

    def pin(self) -> "ImageBatch":
        return ImageBatch(self.images.pin_memory(), self.labels.pin_memory())

    def to(self, device: torch.device) -> "ImageBatch":
        return ImageBatch(self.images.to(device, non_blocking=True), self.labels.to(device, non_blocking=True))


def image_batch(images: np.ndarray, labels: np.ndarray) -> ImageBatch:
    together = torch.from_numpy(np.ascontiguousarray(images)).to(memory_format=torch.channels_last)
    return ImageBatch(together, torch.from_numpy(labels.astype(np.int64)))


class ClassificationLoss(nn.Module):
    """A network whose forward is its training loss: a sum over images, not a mean."""

    def __init__(self, model: ResNet, usual: tuple[list[float], list[float]], label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        for name, values in zip(("mean", "spread"), usual, strict=True):
            self.register_buffer(name, torch.tensor(values).view(1, -1, 1, 1))
        self.mean: Tensor
        self.spread: Tensor

    def scores(self, images: Tensor) -> Tensor:
        """`[images, classes]`"""
        scores: Tensor = self.model((images.to(self.mean.dtype) - self.mean) / self.spread)
        return scores

    def forward(self, batch: ImageBatch) -> Tensor:
        scores = self.scores(batch.images).float()
        return F.cross_entropy(scores, batch.labels, reduction="sum", label_smoothing=self.label_smoothing)


class Classification:
    metric = "accuracy"
    higher_is_better = True
    unit = "images"

    def __init__(
        self,
        corpus: ImageCorpus,
        batch: BatchSettings,
        model: ResNetSettings,
        augmentation: AugmentSettings,
        label_smoothing: float,
        seed: int,
    ) -> None:
        if batch.images is None:
            raise LockstepError("Images are not counted in words or sentences.", "Set batch.images.", code=2)
        if batch.fixed_length is not None:
            raise LockstepError("Images have no length: batch.fixed_length is for text.", "Leave it out.", code=2)
        if batch.micro_words is not None:
            raise LockstepError(
                "batch.micro_words cannot be used with batch norm: it looks at all images of a step at once, and a "
                "micro-batch is only some of them.",
                "Leave it out; when memory is short use more workers or a smaller batch.images.",
                code=2,
            )
        shape = corpus.sets["train"].images.shape
        if augmentation.cutout >= min(shape[2:]):
            raise LockstepError(
                f"data.augment.cutout={augmentation.cutout} can cover a whole image of {shape[3]} x {shape[2]} pixels.",
                "Choose a quarter to half of it.",
                code=2,
            )
        if model.depth == 9 and min(shape[2:]) < 8:
            raise LockstepError(
                f"Images of {shape[3]} x {shape[2]} pixels are too small for model.depth=9, which halves them three times.",
                "Choose another depth.",
                code=2,
            )
        self.corpus, self.model_settings, self.augmentation, self.seed = corpus, model, augmentation, seed
        self.label_smoothing = label_smoothing
        self.width = model.first_channels
        self.data_folder, self.data_facts = corpus.folder, dict(corpus.facts)
        self.train = corpus.sets["train"]
        self.fill = np.array(corpus.channel_statistics[0]).round().astype(np.uint8)
        ones = np.ones(len(self.train), np.int32)
        settings = BatchSettings(sentences=batch.images, bucket=False, shuffle=batch.shuffle, balance=False)
        self.order = Order(ones, ones, settings, seed)

    def module(self) -> ClassificationLoss:
        model = ResNet(self.model_settings, self.train.images.shape[1], len(self.corpus.classes))
        return ClassificationLoss(model, self.corpus.channel_statistics, self.label_smoothing)

    def batches(self, epoch: int, cursor: int) -> Iterator[GlobalBatch]:
        return self.order.batches(Position(epoch, cursor))

    def micro_batches(self, share: np.ndarray, step: int) -> list[ImageBatch]:
        images = augment(self.train.images[share], Draws(share, self.seed, step), self.augmentation, self.fill)
        return [image_batch(images, self.train.labels[share])]

    def example(self) -> ImageBatch:
        """No image at all: even the running averages of batch norm must not learn from it."""
        return image_batch(self.train.images[:0], self.train.labels[:0])

    def evaluate(self, module: nn.Module, team: Team, autocast: Callable[[], Any]) -> Scores:
        return evaluate(module, self.corpus.sets["validation"], team, autocast)

    def export(self, module: nn.Module, folder: Path) -> None:
        from safetensors.torch import save

        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
        (folder / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
        config = {"model": self.model_settings.model_dump(mode="json"), "shape": list(self.train.images.shape[1:])}
        config |= {"classes": self.corpus.classes}
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


@torch.no_grad()
def evaluate(module: nn.Module, images: ImageSet, team: Team, autocast: Callable[[], Any]) -> Scores:
    """Loss (without label smoothing) and accuracy in percent, the images split over the workers."""
    assert isinstance(module, ClassificationLoss)
    sums = torch.zeros(3, dtype=torch.float64)  # loss, right, images
    mine = np.arange(team.rank, len(images), team.size)
    with autocast():
        for part in np.array_split(mine, max(1, len(mine) // EVALUATED_AT_ONCE)):
            batch = image_batch(images.images[part], images.labels[part]).to(team.device)
            scores = module.scores(batch.images).float()
            faults.at("evaluate")
            sums[0] += F.cross_entropy(scores, batch.labels, reduction="sum").double().cpu()
            sums[1] += (scores.argmax(-1) == batch.labels).sum().cpu()
            sums[2] += len(part)
    loss, right, count = total(team, sums)
    return Scores({"loss": loss / count, "accuracy": 100.0 * right / count})


def load(folder: Path, device: torch.device) -> tuple[ClassificationLoss, dict[str, Any]]:
    """An exported model, ready to score images, and what is known of it (`shape` and `classes`)."""
    from safetensors.torch import load as read

    with report_unusable(folder):
        config = read_model_config(folder, "classes", "classifies")
        channels = config["shape"][0]
        model = ResNet(ResNetSettings.model_validate(config["model"]), channels, len(config["classes"]))
        module = ClassificationLoss(model, ([0.0] * channels, [1.0] * channels), label_smoothing=0.0)
        module.load_state_dict(read((folder / "model.safetensors").read_bytes()))
    return module.to(device).eval(), config
