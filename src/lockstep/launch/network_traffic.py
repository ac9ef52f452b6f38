"""How much the network interfaces of this machine carry, as the kernel counts it."""

from collections import deque
from pathlib import Path

INTERFACES = Path("/proc/net/dev")
KEPT_SECONDS = 5.0
LEAST_BYTES = 20_000.0
"""Bytes a second. What monitors tell each other is less: an exchange that carries more than this makes progress."""
SLOW_TIMES = 4.0


def count_bytes() -> int | None:
    """Returns the bytes that were sent or received, whichever is more, without those of the machine to itself."""
    try:
        rows = [line.partition(":") for line in INTERFACES.read_text().splitlines()[2:]]
        figures = [values.split() for name, _, values in rows if name.strip() != "lo"]
        return max(sum(int(row[0]) for row in figures), sum(int(row[8]) for row in figures))
    except (OSError, ValueError, IndexError):
        return None


class NetworkTraffic:
    """The rate of the last seconds, and the highest one since the start."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()
        self.rate = 0.0  # bytes a second in the last KEPT_SECONDS
        self.highest = 0.0  # bytes a second between two looks

    def look(self, now: float) -> None:
        if (count := count_bytes()) is not None:
            self.add(now, count)

    def add(self, now: float, count: int) -> None:
        """Takes the counter's value at a moment."""
        if self._counts and now > self._counts[-1][0]:
            last, carried = self._counts[-1]
            self.highest = max(self.highest, (count - carried) / (now - last))
        self._counts.append((now, count))
        while now - self._counts[0][0] > KEPT_SECONDS:
            self._counts.popleft()
        first, carried = self._counts[0]
        self.rate = (count - carried) / (now - first) if now > first else 0.0

    @property
    def is_slow(self) -> bool:
        """Does the network carry something, but far less than it did earlier?"""
        return self.rate > LEAST_BYTES and self.highest > SLOW_TIMES * self.rate
