"""Augmentation of images by a device: the same bytes as on a CPU, and no waits."""

import numpy as np
import pytest
import torch

from device_stand_ins import META, counting_waits
from lockstep.data.data_settings import AugmentSettings
from lockstep.data.images.augment import Draws, augment, plan_augmentation
from lockstep.tasks.classification import ImageBatch, augment_on_device, make_image_batch

FILL = np.array([10, 20, 30], np.uint8)


def make_plan(shape: tuple[int, ...], settings: AugmentSettings) -> tuple[torch.Tensor, ...]:
    plan = plan_augmentation(shape, Draws(np.arange(shape[0]), 1, 7), settings)
    parts = (plan.rows, plan.columns, plan.covered_rows, plan.covered_columns, FILL)
    return tuple(torch.from_numpy(part) for part in parts)


@pytest.mark.parametrize("pad", [0, 3])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("cutout", [0, 5])
def test_a_device_makes_the_same_images(pad: int, flip: bool, cutout: int) -> None:
    settings = AugmentSettings(pad=pad, flip=flip, cutout=cutout)
    images = np.random.default_rng(3).integers(0, 256, (60, 3, 12, 16)).astype(np.uint8)
    expected = augment(images, Draws(np.arange(60), 1, 7), settings, FILL)
    found = augment_on_device(torch.from_numpy(images), *make_plan(images.shape, settings))
    assert np.array_equal(found.numpy(), expected)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_it_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.zeros((4, 3, 8, 8), np.uint8)
    batch = make_image_batch(images, np.zeros(4, np.int64))
    batch = ImageBatch(batch.images, batch.labels, make_plan(images.shape, AugmentSettings(pad=2, cutout=3)))
    with counting_waits(monkeypatch) as counted:
        moved = batch.pin().to(META)
    assert moved.images.shape == (4, 3, 8, 8)
    assert moved.images.dtype == torch.uint8
    assert moved.plan == ()
    assert counted.waits == []


def test_an_empty_share_stays_empty() -> None:
    images = torch.zeros(0, 3, 8, 8, dtype=torch.uint8)
    assert augment_on_device(images, *make_plan((0, 3, 8, 8), AugmentSettings())).shape == (0, 3, 8, 8)
