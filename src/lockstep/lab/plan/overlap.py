"""Gradients travel in packets while the backward pass computes: which packets, when each is ready, when the last
arrives."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lockstep.explain.reading.steps import Column

VALUE_BYTES = 4
"""Bytes of a gradient value in memory."""


@dataclass(frozen=True)
class ProfiledTensor:
    """The gradient of a parameter, and the share of the backward pass after which it is ready."""

    name: str
    shape: tuple[int, ...]
    ready: float

    @property
    def values(self) -> int:
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class PlannedPacket:
    """Gradients that travel together. `ready` is that of the last of them."""

    values: int
    ready: float


def make_buckets(tensors: Sequence[ProfiledTensor], megabytes: float) -> list[PlannedPacket]:
    """Returns the buckets of DistributedDataParallel after its first backward pass: gradients in the order in which
    they are ready, and a bucket is full as soon as it reaches its size. (Torch makes a smaller first bucket only
    without bucket_cap_mb.)"""
    packets, values, ready = [], 0, 0.0
    for tensor in sorted(tensors, key=lambda tensor: tensor.ready):
        values, ready = values + tensor.values, tensor.ready
        if values * VALUE_BYTES >= megabytes * 2**20:
            packets.append(PlannedPacket(values, ready))
            values = 0
    return [*packets, PlannedPacket(values, ready)] if values else packets


def make_shards(tensors: Sequence[ProfiledTensor], count: int, megabytes: float) -> list[list[PlannedPacket]]:
    """Returns the packets of each of `count` parameter servers. The flat vector of all gradients, in the order of the
    model, is cut into equal shards, and each shard into equal packets."""
    sizes = np.array([tensor.values for tensor in tensors])
    ends = np.cumsum(sizes)
    starts, ready = ends - sizes, np.array([tensor.ready for tensor in tensors])
    total, largest = int(ends[-1]), max(1, int(megabytes * 2**20) // VALUE_BYTES)
    shards = []
    for shard in range(count):
        first, last = total * shard // count, total * (shard + 1) // count
        packets = max(1, -(-(last - first) // largest))
        cuts = [first + (last - first) * i // packets for i in range(packets + 1)]
        spans = zip(cuts, cuts[1:], strict=False)
        shards.append(
            [PlannedPacket(b - a, float(ready[(starts < b) & (ends > a)].max(initial=0.0))) for a, b in spans]
        )
    return shards


def find_last_arrival(ready: Sequence[Column], travel: Sequence[Column]) -> Column:
    """Returns when the last packet arrives if packets travel one after the other: end_k = max(ready_k, end_k-1) + T_k."""
    end = np.zeros_like(travel[0])
    for start, seconds in zip(ready, travel, strict=True):
        end = np.maximum(start, end) + seconds
    return end
