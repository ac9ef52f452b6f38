"""The phase clock: how long each phase of a step took.

A mark ends a phase. On CPU a stamp is a reading of the clock. On CUDA it is an event in the stream, so that marking never
waits for the device and a phase is measured in device time. Stamps are read once per step, after a synchronization.
"""

import time

import torch

PHASES = ("input", "forward", "backward", "merge", "update")
Stamp = float | torch.cuda.Event


class PhaseClock:
    """Measures the phases of one step at a time: `start`, a `mark` at the end of each phase, `finish`."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._is_cuda = device, device.type == "cuda"
        self.overhead = 0.0  # seconds spent in `mark`
        self.start()

    def stamp(self) -> Stamp:
        """Returns the current point in time, on CUDA that of the stream."""
        if not self._is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))  # other threads may have another current device
        return event

    def between(self, begin: Stamp, end: Stamp) -> float:
        """Returns the seconds between two stamps. On CUDA it waits until the device has reached both, if it has not: torch
        refuses to read an event before."""
        if isinstance(begin, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
            for event in (begin, end):
                if not event.query():
                    event.synchronize()
            return begin.elapsed_time(end) / 1000.0
        assert isinstance(begin, float)
        assert isinstance(end, float)
        return end - begin

    def since(self, begin: Stamp) -> float:
        """Returns the seconds from a stamp until now. It waits for the device."""
        return self.between(begin, self.stamp())

    def start(self) -> None:
        """Begins a step."""
        self._marks: list[tuple[str, Stamp]] = [("", self.stamp())]
        self._moves: list[tuple[str, str, float]] = []

    def mark(self, phase: str) -> None:
        """Ends a phase: the time since the previous mark is added to it."""
        begin = time.perf_counter()
        self._marks.append((phase, self.stamp()))
        self.overhead += time.perf_counter() - begin

    def move(self, source: str, target: str, seconds: float) -> None:
        """Moves seconds from one phase to another, at most as many as the phase has."""
        self._moves.append((source, target, seconds))

    def finish(self) -> tuple[float, dict[str, float]]:
        """Returns the seconds of the step, and of each phase."""
        phases = dict.fromkeys(PHASES, 0.0)
        for (_, begin), (phase, end) in zip(self._marks, self._marks[1:], strict=False):
            phases[phase] += self.between(begin, end)
        for source, target, seconds in self._moves:
            seconds = min(seconds, phases[source])
            phases[source] -= seconds
            phases[target] += seconds
        return self.between(self._marks[0][1], self._marks[-1][1]), phases
