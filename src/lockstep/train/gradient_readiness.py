"""When each gradient is complete within the backward pass: what can travel while the rest is still computed."""

from statistics import median
from typing import Any

from torch import nn

from lockstep.run.journal import Journal
from lockstep.watch.clock import PhaseClock

STEPS = 6
"""Backward passes that are watched."""


class Readiness:
    """Stamps every gradient of a few backward passes, and journals the medians as one line of kind `profile`."""

    def __init__(self, module: nn.Module, clock: PhaseClock, journal: Journal) -> None:
        self._clock, self._journal = clock, journal
        self._sums = [size for layer in module.modules() for size in getattr(layer, "sum_bytes", ())]
        self._parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._seconds: dict[str, list[float]] = {name: [] for name in self._parameters}
        self._passes: list[float] = []
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: self._ready(name))
            for name, parameter in self._parameters.items()
        ]
        self.begin()

    def begin(self) -> None:
        """A backward pass is about to start."""
        self._begin, self._stamps = self._clock.stamp(), dict[str, Any]()

    def _ready(self, name: str) -> None:
        self._stamps[name] = self._clock.stamp()

    def end_of_step(self) -> bool:
        """After the device caught up. Returns whether enough passes were seen; then the line is written."""
        found = {name: self._clock.between(self._begin, stamp) for name, stamp in self._stamps.items()}
        if not found:
            return False
        self._passes.append(max(found.values()))
        for name, seconds in found.items():
            self._seconds[name].append(seconds)
        if len(self._passes) < STEPS:
            return False
        for hook in self._hooks:
            hook.remove()
        self._write()
        return True

    def _write(self) -> None:
        """In the order of the model. A tensor that no pass reached counts as ready at the end."""
        whole = median(self._passes)
        tensors = [
            {"name": name, "shape": list(parameter.shape), "seconds": median(self._seconds[name] or [whole])}
            for name, parameter in self._parameters.items()
        ]
        self._journal.write("profile", steps=STEPS, backward_seconds=whole, tensors=tensors, sums=self._sums)
