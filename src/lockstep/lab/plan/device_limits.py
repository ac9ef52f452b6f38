"""What keeps a small model from using a fast device: every kernel takes time to launch, and small products do not fill the
device. Both are stated as ranges, because they depend on driver, host and kernels."""

from dataclasses import dataclass

from lockstep.lab.plan.profile import ModelShape

KERNELS = (5, 10)
"""Kernels that a step launches for every parameter tensor: forward, backward and update, with the operations around them.
A Transformer layer of torch has 12 to 18 tensors and launches about 60 to 180 kernels without a compiler."""
LAUNCH_SECONDS = (4e-6, 10e-6)
"""Seconds between the starts of two kernels that Python launches one by one."""
HALF_FULL = (64, 256)
"""The smallest dimension of a product with which it reaches half of the device's best rate."""
USUAL = 512
"""The dimension for which a preset's share of the peak was stated."""


@dataclass(frozen=True)
class Range:
    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low * self.high) ** 0.5

    @property
    def error(self) -> float:
        """The relative error that reaches from the middle to both ends."""
        return (self.high / self.low) ** 0.5 - 1


def estimate_launches(shape: ModelShape) -> Range:
    """Returns the seconds that launching the kernels of a step takes: no step is shorter, however small its batch."""
    tensors = len(shape.tensors)
    return Range(*(tensors * kernels * seconds for kernels, seconds in zip(KERNELS, LAUNCH_SECONDS, strict=True)))


def estimate_fill(shape: ModelShape, words: float) -> Range:
    """Returns how well the products of a step fill a device, where 1 is what usual models reach. The smallest dimension of
    each product decides; large tensors compute most."""
    sizes = [(_find_smallest(tensor.shape, words), _count(tensor.shape)) for tensor in shape.tensors]
    total = sum(count for _, count in sizes) or 1
    ends = [sum(count * _saturate(size, half) for size, count in sizes) / total for half in HALF_FULL]
    return Range(*sorted(ends)) if sizes else Range(1.0, 1.0)


def _saturate(size: float, half: float) -> float:
    return min(1.0, size / (size + half) * (USUAL + half) / USUAL)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _find_smallest(shape: tuple[int, ...], words: float) -> float:
    """Returns the smallest dimension of the product of a batch with a tensor. A vector is part of another product."""
    first = shape[0] if len(shape) > 1 else USUAL
    return max(1.0, min(words, first, _count(shape) / first if len(shape) > 1 else USUAL))


def estimate_seconds(shape: ModelShape, words: float, flops_per_second: float, error: float) -> Range:
    """Returns the seconds of a step on a device that usual models use with `flops_per_second`, known up to `error`."""
    launches, fill, usual = estimate_launches(shape), estimate_fill(shape, words), shape.flops_per_word * words
    shortest = usual / flops_per_second / fill.high / (1 + error)
    longest = usual / flops_per_second / fill.low * (1 + error)
    return Range(max(launches.low, shortest), max(launches.high, longest))
