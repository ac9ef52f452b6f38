"""Seconds that an exchange takes. Everything works on arrays of worker counts, so that thousands cost no more than one.

A pipe has a rate, in bytes per second each way at the same time, and a latency, in seconds before the first byte arrives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from lockstep.explain.reading.steps import Column


@dataclass(frozen=True)
class Pipe:
    """What joins two workers."""

    name: str
    bytes_per_second: float
    latency_seconds: float = 0.0
    error: float = 0.05  # how far the rate may be off, as a share of it
    source: str = "given"
    host_seconds_per_byte: float = (
        0.0  # processor time that sending a byte takes from computing, where both share cores
    )


def ring(size: float, workers: Column, pipe: Pipe) -> Column:
    """Every worker sends each of `workers` pieces round the ring, once to be summed and once to be spread."""
    return 2 * (workers - 1) / workers * size / pipe.bytes_per_second + 2 * (workers - 1) * pipe.latency_seconds


def tree(size: float, workers: Column, pipe: Pipe) -> Column:
    """Two binary trees that carry half each, in a stream of small pieces: twice the size passes every link, but the first
    piece only takes as many hops as the trees are high."""
    hops = np.ceil(np.log2(workers))
    return np.where(workers > 1, 2 * size / pipe.bytes_per_second, 0.0) + 2 * hops * pipe.latency_seconds


def half_ring(size: float, workers: Column, pipe: Pipe) -> Column:
    """A reduce-scatter, or an all-gather: half of a ring."""
    return ring(size, workers, pipe) / 2


Exchange = Callable[[float, Column, Pipe], Column]


@dataclass(frozen=True)
class Wiring:
    """Workers fill nodes one after another: `inside` joins those of a node, `between` joins nodes."""

    between: Pipe
    inside: Pipe | None = None  # None: a node has one worker
    per_node: int = 1
    algorithm: str = "ring"  # ring, tree or hierarchical

    def nodes(self, workers: Column) -> Column:
        return np.ceil(workers / self.per_node)

    def slowest(self, workers: Column) -> list[tuple[Pipe, np.ndarray]]:
        """Which pipe bounds an exchange that goes through all workers, and for which counts it does."""
        if self.inside is None or self.per_node == 1:
            return [(self.between, workers > 0)]
        return [(self.inside, self.nodes(workers) == 1), (self.between, self.nodes(workers) > 1)]

    def over(self, exchange: Exchange, size: float, workers: Column) -> Column:
        """Seconds of an exchange that goes through all workers one after another."""
        seconds = np.zeros_like(workers)
        for pipe, where in self.slowest(workers):
            seconds[where] = exchange(size, workers[where], pipe)
        return seconds

    def all_reduce(self, size: float, workers: Column) -> Column:
        if self.algorithm == "tree":
            return self.over(tree, size, workers)
        if self.algorithm == "hierarchical" and self.inside is not None:
            here = np.minimum(workers, self.per_node)
            return ring(size, here, self.inside) + ring(size, self.nodes(workers), self.between)
        return self.over(ring, size, workers)

    def rate(self, workers: Column) -> Column:
        """Bytes per second that a worker can send to workers anywhere, all doing so at once."""
        rate = np.zeros_like(workers)
        for pipe, where in self.slowest(workers):
            rate[where] = pipe.bytes_per_second
        return rate / np.where(self.nodes(workers) > 1, np.minimum(self.per_node, workers), 1)

    def latency(self, workers: Column) -> Column:
        latency = np.zeros_like(workers)
        for pipe, where in self.slowest(workers):
            latency[where] = pipe.latency_seconds
        return latency


def expected_maximum(workers: Column) -> Column:
    """By how many standard deviations the slowest of so many workers is later than the mean (Blom's approximation)."""
    normal, counts = NormalDist(), np.unique(workers)
    known = {n: normal.inv_cdf((n - 0.375) / (n + 0.25)) if n > 1 else 0.0 for n in counts.tolist()}
    return np.array([known[n] for n in workers.tolist()])
