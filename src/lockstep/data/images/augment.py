"""Random augmentation of training images: crop, flip, cutout. It takes and returns batches of bytes.

The augmentation of an image is a pure function of (seed, step, index of the image). It depends neither on the position in
the batch nor on the worker, so the update is the same with any number of workers.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lockstep.data.data_settings import AugmentSettings

Pixels = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


class Draws:
    """A stream of random numbers for every image of a batch."""

    def __init__(self, indices: npt.NDArray[np.integer], seed: int, step: int) -> None:
        state = _mix(np.array([seed], np.uint64)) ^ np.uint64(step)
        self._state = _mix(_mix(state) ^ indices.astype(np.uint64))

    def below(self, limit: int) -> Numbers:
        """Draws the next number of every image uniformly from 0 to `limit` - 1, `[images]`."""
        self._state = _mix(self._state)
        return ((self._state >> np.uint64(32)) * np.uint64(limit) >> np.uint64(32)).astype(np.int64)


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mixes the bits of every value (the finalizer of SplitMix64), so that similar values give unrelated ones."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def augment(images: Pixels, draws: Draws, settings: AugmentSettings, fill: Pixels) -> Pixels:
    """Augments a batch `[images, channels, height, width]`. Padding and cutout get the colour `fill`, `[channels]`."""
    if settings.pad:
        images = _crop(images, draws, settings.pad, fill)
    if settings.flip:
        mirrored = draws.below(2).astype(bool)
        images = np.where(mirrored[:, None, None, None], images[..., ::-1], images)
    if settings.cutout:
        images = _cut_out(images, draws, settings.cutout, fill)
    return images


@dataclass(frozen=True)
class AugmentationPlan:
    """What `augment` does to each image of a batch, for devices that do it themselves."""

    rows: Numbers  # [images, height] from which row of the image each row is taken; -1: the fill colour
    columns: Numbers  # [images, width]
    covered_rows: npt.NDArray[np.bool_]  # [images, height] rows of the square that cutout covers
    covered_columns: npt.NDArray[np.bool_]  # [images, width]


def plan_augmentation(shape: tuple[int, ...], draws: Draws, settings: AugmentSettings) -> AugmentationPlan:
    """Takes the same draws as `augment`, for a batch of this shape `[images, channels, height, width]`."""
    count, _, height, width = shape
    places = []
    for length in (height, width):
        shift = draws.below(2 * settings.pad + 1)[:, None] - settings.pad if settings.pad else 0
        place = np.arange(length)[None, :] + np.zeros((count, 1), np.int64) + shift
        places.append(np.where((place >= 0) & (place < length), place, -1))
    rows, columns = places
    if settings.flip:
        columns = np.where(draws.below(2).astype(bool)[:, None], columns[:, ::-1], columns)
    covered = [np.zeros((count, length), bool) for length in (height, width)]
    if settings.cutout:
        covered = [_mark_range(draws.below(length), settings.cutout, length) for length in (height, width)]
    return AugmentationPlan(rows, columns, *covered)


def _crop(images: Pixels, draws: Draws, pad: int, fill: Pixels) -> Pixels:
    """Pads every image by `pad` pixels on each side and crops it back to its size at a random position."""
    count, channels, height, width = images.shape
    padded = np.empty((count, channels, height + 2 * pad, width + 2 * pad), np.uint8)
    padded[:] = fill[:, None, None]
    padded[:, :, pad:-pad, pad:-pad] = images
    crops = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    return crops[np.arange(count), :, draws.below(2 * pad + 1), draws.below(2 * pad + 1)]


def _cut_out(images: Pixels, draws: Draws, size: int, fill: Pixels) -> Pixels:
    """Covers a square of `size` pixels, whose centre is at a random position on the image."""
    _, _, height, width = images.shape
    rows, columns = (_mark_range(draws.below(length), size, length) for length in (height, width))
    square = rows[:, None, :, None] & columns[:, None, None, :]  # [images, 1, height, width]
    return np.where(square, fill[:, None, None], images)


def _mark_range(centres: Numbers, size: int, length: int) -> npt.NDArray[np.bool_]:
    """Marks the `size` positions around each centre, `[images, length]`."""
    begin = centres[:, None] - size // 2
    positions = np.arange(length)
    return (positions >= begin) & (positions < begin + size)
