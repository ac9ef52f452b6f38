"""Gradients travel in packets while the backward pass still computes: which packets, when each is ready, when the last
has arrived."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lockstep.explain.reading.steps import Column

WORD = 4
"""Bytes of a gradient value in memory."""


@dataclass(frozen=True)
class Tensor:
    """A parameter's gradient: its size, and at which share of the backward pass it is ready."""

    name: str
    shape: tuple[int, ...]
    ready: float

    @property
    def values(self) -> int:
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class PlannedPacket:
    """Gradients that travel together, ready when the last of them is."""

    values: int
    ready: float


def buckets(tensors: Sequence[Tensor], megabytes: float) -> list[PlannedPacket]:
    """As DistributedDataParallel packs them after its first backward pass: in the order in which they are ready, and a
    bucket is closed as soon as it has reached its size. (Its smaller first bucket is for users who name no size.)"""
    packets, values, ready = [], 0, 0.0
    for tensor in sorted(tensors, key=lambda tensor: tensor.ready):
        values, ready = values + tensor.values, tensor.ready
        if values * WORD >= megabytes * 2**20:
            packets.append(PlannedPacket(values, ready))
            values = 0
    return [*packets, PlannedPacket(values, ready)] if values else packets


def parts(tensors: Sequence[Tensor], count: int, megabytes: float) -> list[list[PlannedPacket]]:
    """As parameter servers cut the whole vector: equal parts in the order of the model, and these in equal packets."""
    sizes = np.array([tensor.values for tensor in tensors])
    ends = np.cumsum(sizes)
    begins, ready = ends - sizes, np.array([tensor.ready for tensor in tensors])
    whole, largest = int(ends[-1]), max(1, int(megabytes * 2**20) // WORD)
    found = []
    for part in range(count):
        first, last = whole * part // count, whole * (part + 1) // count
        packets = max(1, -(-(last - first) // largest))
        cuts = [first + (last - first) * i // packets for i in range(packets + 1)]
        spans = zip(cuts, cuts[1:], strict=False)
        found.append([PlannedPacket(b - a, float(ready[(begins < b) & (ends > a)].max(initial=0.0))) for a, b in spans])
    return found


def last_arrival(ready: Sequence[Column], travel: Sequence[Column]) -> Column:
    """When the last packet is there, where one travels after the other: end_k = max(ready_k, end_k-1) + T_k."""
    end = np.zeros_like(travel[0])
    for begin, seconds in zip(ready, travel, strict=True):
        end = np.maximum(begin, end) + seconds
    return end
