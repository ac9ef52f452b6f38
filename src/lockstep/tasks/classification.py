"""Image classification: images with labels, a residual network, cross-entropy, accuracy."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep import faults
from lockstep.data.corpus.batches import GlobalBatch, Order, Position
from lockstep.data.data_settings import AugmentSettings, BatchSettings
from lockstep.data.images.augment import Draws, augment, plan_augmentation
from lockstep.data.images.image_set import ImageCorpus, ImageSet
from lockstep.errors import LockstepError
from lockstep.models.model_settings import ResNetSettings
from lockstep.models.resnet import ResNet
from lockstep.run.checkpoint import read_model_config, report_unusable
from lockstep.tasks.scoring import ScoringProgress
from lockstep.tasks.task import Autocast, Scores, write_model
from lockstep.team import Team

EVALUATION_BATCH_IMAGES = 100
"""Few, so that a stop signal never waits long for a part."""


@dataclass
class ImageBatch:
    """Images as bytes in channels-last format, in which convolutions are fastest on CPU, and their labels."""

    images: Tensor  # [images, channels, height, width]
    labels: Tensor  # [images]
    plan: tuple[
        Tensor, ...
    ] = ()  # of the augmentation that the device does: the fields of AugmentationPlan, the colour

    @property
    def target_words(self) -> int:
        return len(self.labels)

    @property
    def source_words(self) -> int:
        return len(self.labels)

    def pin(self) -> "ImageBatch":
        plan = tuple(tensor.pin_memory() for tensor in self.plan)
        return ImageBatch(self.images.pin_memory(), self.labels.pin_memory(), plan)

    def to(self, device: torch.device) -> "ImageBatch":
        images, labels, *plan = (
            tensor.to(device, non_blocking=True) for tensor in (self.images, self.labels, *self.plan)
        )
        return ImageBatch(augment_on_device(images, *plan) if plan else images, labels)


def augment_on_device(
    images: Tensor, rows: Tensor, columns: Tensor, covered_rows: Tensor, covered_columns: Tensor, fill: Tensor
) -> Tensor:
    """Does what a plan says, without waiting for the device. The bytes are those of `augment`."""
    count, channels = images.shape[:2]
    number = torch.arange(count, device=images.device)[:, None, None, None]
    channel = torch.arange(channels, device=images.device)[None, :, None, None]
    row, column = rows[:, None, :, None], columns[:, None, None, :]
    taken = images[number, channel, row.clamp(min=0), column.clamp(min=0)]  # [images, channels, height, width]
    is_covered = covered_rows[:, None, :, None] & covered_columns[:, None, None, :]
    is_image = (row >= 0) & (column >= 0) & ~is_covered
    augmented = torch.where(is_image, taken, fill[None, :, None, None])
    return augmented.contiguous(memory_format=torch.channels_last)


def make_image_batch(images: np.ndarray, labels: np.ndarray) -> ImageBatch:
    channels_last = torch.from_numpy(np.ascontiguousarray(images)).to(memory_format=torch.channels_last)
    return ImageBatch(channels_last, torch.from_numpy(labels.astype(np.int64)))


class ClassificationLoss(nn.Module):
    """A network whose forward returns the training loss, summed over images."""

    def __init__(self, model: ResNet, channel_stats: tuple[list[float], list[float]], label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        for name, values in zip(("mean", "spread"), channel_stats, strict=True):
            self.register_buffer(name, torch.tensor(values).view(1, -1, 1, 1))
        self.mean: Tensor  # [1, channels, 1, 1]
        self.spread: Tensor  # the standard deviation, [1, channels, 1, 1]

    def compute_logits(self, images: Tensor) -> Tensor:
        """Bytes `[images, channels, height, width]` -> `[images, classes]`."""
        logits: Tensor = self.model((images.to(self.mean.dtype) - self.mean) / self.spread)
        return logits

    def forward(self, batch: ImageBatch) -> Tensor:
        logits = self.compute_logits(batch.images).float()
        return F.cross_entropy(logits, batch.labels, reduction="sum", label_smoothing=self.label_smoothing)


class Classification:
    """The task `classification`."""

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
        augments_on_device: bool = False,
    ) -> None:
        self.augments_on_device = augments_on_device
        _check_settings(batch, model, augmentation, corpus.sets["train"].images.shape)
        assert batch.images is not None
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
        images, labels, draws = self.train.images[share], self.train.labels[share], Draws(share, self.seed, step)
        if not self.augments_on_device:
            return [make_image_batch(augment(images, draws, self.augmentation, self.fill), labels)]
        plan = plan_augmentation(images.shape, draws, self.augmentation)
        parts = (plan.rows, plan.columns, plan.covered_rows, plan.covered_columns, self.fill)
        return [replace(make_image_batch(images, labels), plan=tuple(torch.from_numpy(part) for part in parts))]

    def example(self) -> ImageBatch:
        """Returns a batch without images: a trial must not change the running averages of batch norm."""
        return make_image_batch(self.train.images[:0], self.train.labels[:0])

    def evaluate(self, module: nn.Module, team: Team, autocast: Autocast, progress: ScoringProgress) -> Scores:
        return evaluate(module, self.corpus.sets["validation"], team, autocast, progress)

    def export(self, module: nn.Module, folder: Path) -> None:
        config = {"model": self.model_settings.model_dump(mode="json"), "shape": list(self.train.images.shape[1:])}
        write_model(folder, module, config | {"classes": self.corpus.classes})


def _check_settings(
    batch: BatchSettings, model: ResNetSettings, augmentation: AugmentSettings, shape: tuple[int, ...]
) -> None:
    """Raises when the settings do not fit together, or do not fit images of this shape."""
    if batch.images is None:
        raise LockstepError("Images are not counted in words or sentences.", "Set batch.images.", code=2)
    if batch.fixed_length is not None:
        raise LockstepError("Images have no length: batch.fixed_length is for text.", "Remove it.", code=2)
    if batch.micro_words is not None:
        raise LockstepError(
            "batch.micro_words cannot be used with batch norm, which needs all images of a step at once.",
            "Remove it; if memory is short, use more workers or a smaller batch.images.",
            code=2,
        )
    if augmentation.cutout >= min(shape[2:]):
        raise LockstepError(
            f"data.augment.cutout={augmentation.cutout} can cover a whole image of {shape[3]} x {shape[2]} pixels.",
            "Choose a quarter to half of the image size.",
            code=2,
        )
    if model.depth == 9 and min(shape[2:]) < 8:
        raise LockstepError(
            f"Images of {shape[3]} x {shape[2]} pixels are too small for model.depth=9, which halves them three times.",
            "Choose another model.depth.",
            code=2,
        )


@torch.no_grad()
def evaluate(module: nn.Module, images: ImageSet, team: Team, autocast: Autocast, progress: ScoringProgress) -> Scores:
    """Returns loss (without label smoothing) and accuracy in percent. Each worker evaluates some of the parts, which do not
    depend on the number of workers."""
    assert isinstance(module, ClassificationLoss)
    chosen = progress.begin(len(images))
    parts = np.array_split(chosen, -(-len(chosen) // EVALUATION_BATCH_IMAGES))
    own, done = list[list[float]](), 0  # number of the part, its loss, its correct images
    with autocast():
        for number in range(team.rank, len(parts), team.size):
            progress.update(done)
            part = parts[number]
            batch = make_image_batch(images.images[part], images.labels[part]).to(team.device)
            logits = module.compute_logits(batch.images).float()
            faults.at("evaluate")
            loss = F.cross_entropy(logits, batch.labels, reduction="sum").double().item()
            own.append([number, loss, int((logits.argmax(-1) == batch.labels).sum())])
            done += len(part)
    progress.finish(done)
    scored = sorted(part for parts in team.gather(own) for part in parts)
    loss, correct = (sum(part[1] for part in scored), sum(part[2] for part in scored))
    return Scores({"loss": loss / len(chosen), "accuracy": 100.0 * correct / len(chosen)})


class ClassifierConfig(TypedDict):
    """The part of an exported model's `config.json` that describes its input and output."""

    shape: tuple[int, ...]  # channels, height, width
    classes: list[str]


def load(folder: Path, device: torch.device) -> tuple[ClassificationLoss, ClassifierConfig]:
    """Returns an exported model in evaluation mode, and the shape of its images with the names of its classes."""
    from safetensors.torch import load as read

    with report_unusable(folder):
        config = read_model_config(folder, "classes", "classifies")
        channels = config["shape"][0]
        model = ResNet(ResNetSettings.model_validate(config["model"]), channels, len(config["classes"]))
        module = ClassificationLoss(model, ([0.0] * channels, [1.0] * channels), label_smoothing=0.0)
        module.load_state_dict(read((folder / "model.safetensors").read_bytes()))
    return module.to(device).eval(), {"shape": tuple(config["shape"]), "classes": config["classes"]}
