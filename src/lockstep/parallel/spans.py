"""How long packets of gradients were under way."""

from collections.abc import Sequence
from typing import Any

from lockstep.parallel.strategy import Clock

Span = Sequence[Any]
"""Two stamps of the clock: a packet was ready, and it was merged."""


def busy(clock: Clock, spans: Sequence[Span]) -> float:
    """Seconds in which at least one packet was under way; the spans in the order in which they began."""
    total, reached = 0.0, 0.0
    for ready, merged in spans:
        start, end = (clock.between(spans[0][0], stamp) for stamp in (ready, merged))
        total += max(0.0, end - max(reached, start))
        reached = max(reached, end)
    return total
