"""How long packets of gradients were under way."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from lockstep.parallel.strategy import Clock

Span = Sequence[Any]
"""Two stamps of the clock: a packet was ready, and it was merged."""


def busy(clock: Clock, spans: Sequence[Span]) -> float:
    """Seconds in which at least one packet was under way."""
    return union_seconds((clock.between(spans[0][0], begin), clock.between(spans[0][0], end)) for begin, end in spans)


def union_seconds(intervals: Iterable[tuple[float, float]], until: float = math.inf) -> float:
    """Seconds before `until` that at least one of the intervals (begin, end) covers."""
    total, reached = 0.0, -math.inf
    for begin, end in sorted(intervals):
        end = min(end, until)
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
