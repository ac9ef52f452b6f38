"""Changes to training images that keep what they show: shifted, mirrored, with a hole. Whole batches, bytes in, bytes out.

What happens to an image is a pure function of (seed, step, image): neither its place in the batch nor the worker that
computes it enters, so the update is the same with any number of workers.
"""

import numpy as np
import numpy.typing as npt

from lockstep.data.data_settings import AugmentSettings

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


class Draws:
    """Random numbers for every image, one after the other."""

    def __init__(self, indices: npt.NDArray[np.integer], seed: int, step: int) -> None:
        state = _mix(np.array([seed], np.uint64)) ^ np.uint64(step)
        self._state = _mix(_mix(state) ^ indices.astype(np.uint64))

    def below(self, limit: int) -> Numbers:
        """From 0 to `limit` - 1, all alike."""
        self._state = _mix(self._state)
        return ((self._state >> np.uint64(32)) * np.uint64(limit) >> np.uint64(32)).astype(np.int64)


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Scatters 64 bits (the finaliser of SplitMix64): neighbouring numbers give unrelated ones."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def augment(images: Bytes, draws: Draws, settings: AugmentSettings, fill: Bytes) -> Bytes:
    """`[images, channels, height, width]`; what is not known of an image gets the colour `fill`."""
    if settings.pad:
        images = _shifted(images, draws, settings.pad, fill)
    if settings.flip:
        mirrored = draws.below(2).astype(bool)
        images = np.where(mirrored[:, None, None, None], images[..., ::-1], images)
    if settings.cutout:
        images = _holed(images, draws, settings.cutout, fill)
    return images


def _shifted(images: Bytes, draws: Draws, pad: int, fill: Bytes) -> Bytes:
    """A window of the image's own size, anywhere on the image with a frame of `pad` points."""
    count, channels, height, width = images.shape
    framed = np.empty((count, channels, height + 2 * pad, width + 2 * pad), np.uint8)
    framed[:] = fill[:, None, None]
    framed[:, :, pad:-pad, pad:-pad] = images
    windows = np.lib.stride_tricks.sliding_window_view(framed, (height, width), axis=(2, 3))
    return windows[np.arange(count), :, draws.below(2 * pad + 1), draws.below(2 * pad + 1)]


def _holed(images: Bytes, draws: Draws, size: int, fill: Bytes) -> Bytes:
    """A square of `size` points, its middle anywhere on the image."""
    _, _, height, width = images.shape
    rows, columns = (_within(draws.below(length), size, length) for length in (height, width))
    hole = rows[:, None, :, None] & columns[:, None, None, :]  # [images, 1, height, width]
    return np.where(hole, fill[:, None, None], images)


def _within(middle: Numbers, size: int, length: int) -> npt.NDArray[np.bool_]:
    """`[images, length]`: is a place at most half a hole away from the middle?"""
    begin = middle[:, None] - size // 2
    places = np.arange(length)
    return (places >= begin) & (places < begin + size)
