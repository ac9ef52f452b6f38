"""Seconds of collective operations. All functions take arrays of worker counts, [counts], and return [counts].

A link has a rate, in bytes per second in each direction, and a latency, in seconds until the first byte arrives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from lockstep.explain.reading.steps import Column, Mask


@dataclass(frozen=True)
class LinkModel:
    """The connection between two workers or two nodes."""

    name: str
    bytes_per_second: float
    latency_seconds: float = 0.0
    error: float = 0.05  # relative error of the rate
    source: str = "given"
    host_seconds_per_byte: float = 0.0  # processor time of sending a byte, where sending and computing share cores


def ring_seconds(size: float, workers: Column, link: LinkModel) -> Column:
    """A ring all-reduce: each of `workers` pieces travels round the ring twice, once to be summed and once as the sum."""
    return 2 * (workers - 1) / workers * size / link.bytes_per_second + 2 * (workers - 1) * link.latency_seconds


def tree_seconds(size: float, workers: Column, link: LinkModel) -> Column:
    """An all-reduce over two binary trees, each with half of the data in small chunks. Twice the size passes every
    link; the latency is that of the height of the trees."""
    hops = np.ceil(np.log2(workers))
    return np.where(workers > 1, 2 * size / link.bytes_per_second, 0.0) + 2 * hops * link.latency_seconds


def half_ring_seconds(size: float, workers: Column, link: LinkModel) -> Column:
    """A reduce-scatter or an all-gather: half of a ring all-reduce."""
    return ring_seconds(size, workers, link) / 2


Exchange = Callable[[float, Column, LinkModel], Column]


@dataclass(frozen=True)
class Wiring:
    """The links of a cluster. Workers fill one node after another."""

    between: LinkModel  # between nodes
    inside: LinkModel | None = None  # between the workers of a node; None: one worker per node
    per_node: int = 1
    algorithm: str = "ring"  # ring, tree or hierarchical

    def count_nodes(self, workers: Column) -> Column:
        return np.ceil(workers / self.per_node)

    def find_slowest_links(self, workers: Column) -> list[tuple[LinkModel, Mask]]:
        """Returns each link with the mask of the worker counts for which it bounds an exchange among all workers."""
        if self.inside is None or self.per_node == 1:
            return [(self.between, workers > 0)]
        nodes = self.count_nodes(workers)
        return [(self.inside, nodes == 1), (self.between, nodes > 1)]

    def time_exchange(self, exchange: Exchange, size: float, workers: Column) -> Column:
        """Returns the seconds of an exchange that passes through all workers, bounded by the slowest link."""
        seconds = np.zeros_like(workers)
        for link, mask in self.find_slowest_links(workers):
            seconds[mask] = exchange(size, workers[mask], link)
        return seconds

    def time_all_reduce(self, size: float, workers: Column) -> Column:
        if self.algorithm == "tree":
            return self.time_exchange(tree_seconds, size, workers)
        if self.algorithm == "hierarchical" and self.inside is not None:
            in_node = np.minimum(workers, self.per_node)
            return ring_seconds(size, in_node, self.inside) + ring_seconds(
                size, self.count_nodes(workers), self.between
            )
        return self.time_exchange(ring_seconds, size, workers)

    def send_rate(self, workers: Column) -> Column:
        """Bytes per second that each worker can send when all workers send at the same time."""
        rate = np.zeros_like(workers)
        for link, mask in self.find_slowest_links(workers):
            rate[mask] = link.bytes_per_second
        return rate / np.where(self.count_nodes(workers) > 1, np.minimum(self.per_node, workers), 1)

    def latency(self, workers: Column) -> Column:
        latency = np.zeros_like(workers)
        for link, mask in self.find_slowest_links(workers):
            latency[mask] = link.latency_seconds
        return latency


def expected_maximum(workers: Column) -> Column:
    """The expected maximum of as many standard normal values as there are workers (Blom's approximation)."""
    normal, counts = NormalDist(), np.unique(workers)
    known = {n: normal.inv_cdf((n - 0.375) / (n + 0.25)) if n > 1 else 0.0 for n in counts.tolist()}
    return np.array([known[n] for n in workers.tolist()])
