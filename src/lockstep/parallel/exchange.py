"""How much an exchange sends, and how long it was under way."""

import math
from collections.abc import Iterable, Sequence

from lockstep.parallel.strategy import Clock, Stamp

Span = Sequence[Stamp]
"""Two stamps of the clock: a packet was ready, and it was summed."""


def ring_bytes(size: int, workers: int) -> int:
    """Returns the bytes that each worker sends when a ring all-reduces `size` bytes."""
    return size * 2 * (workers - 1) // workers


def busy_seconds(intervals: Iterable[tuple[float, float]], until: float = math.inf) -> float:
    """Returns the length of the union of the intervals, as far as it lies before `until`."""
    total, reached = 0.0, -math.inf
    for begin, end in sorted(intervals):
        end = min(end, until)
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def stamped_seconds(clock: Clock, spans: Sequence[Span]) -> float:
    """Returns the seconds in which at least one packet was under way."""
    return busy_seconds((clock.between(spans[0][0], ready), clock.between(spans[0][0], end)) for ready, end in spans)
