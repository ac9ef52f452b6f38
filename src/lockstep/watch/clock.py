"""The phase clock: how long each part of a step took.

A mark ends a phase. On CPU a stamp is a reading of the clock; on CUDA it is an event in the stream, so that marking never
waits for the device and phases are the device's own time. Stamps are read once per step, after the device caught up.
"""

import time
from typing import Any

import torch

PHASES = ("input", "forward", "backward", "merge", "update")


class PhaseClock:
    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.own = 0.0  # seconds spent on keeping time
        self.start()

    def stamp(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin: Any, end: Any) -> float:
        """Seconds; on CUDA both stamps must have been passed."""
        return float(begin.elapsed_time(end)) / 1000.0 if self._cuda else float(end - begin)

    def since(self, begin: Any) -> float:
        """Seconds from a stamp until now; waits for the device."""
        now = self.stamp()
        if self._cuda:
            now.synchronize()
        return self.between(begin, now)

    def start(self) -> None:
        self._marks: list[tuple[str, Any]] = [("", self.stamp())]
        self._moves: list[tuple[str, str, float]] = []

    def mark(self, phase: str) -> None:
        begin = time.perf_counter()
        self._marks.append((phase, self.stamp()))
        self.own += time.perf_counter() - begin

    def move(self, source: str, target: str, seconds: float) -> None:
        """Books seconds that were marked as one phase under another."""
        self._moves.append((source, target, seconds))

    def finish(self) -> tuple[float, dict[str, float]]:
        """Seconds of the step, and of each phase."""
        if self._cuda:
            self._marks[-1][1].synchronize()
        phases = dict.fromkeys(PHASES, 0.0)
        for (_, begin), (phase, end) in zip(self._marks, self._marks[1:], strict=False):
            phases[phase] += self.between(begin, end)
        for source, target, seconds in self._moves:
            seconds = min(seconds, phases[source])
            phases[source] -= seconds
            phases[target] += seconds
        return self.between(self._marks[0][1], self._marks[-1][1]), phases
