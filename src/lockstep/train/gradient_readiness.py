"""When each gradient is complete within the backward pass, and so can be sent while the rest is computed."""

from statistics import median

from torch import nn

from lockstep.run.journal import Journal
from lockstep.watch.clock import PhaseClock, Stamp

STEPS = 6
"""Number of backward passes that are measured."""


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
        """Called before a backward pass."""
        self._begin, self._stamps = self._clock.stamp(), dict[str, Stamp]()

    def _ready(self, name: str) -> None:
        self._stamps[name] = self._clock.stamp()

    def end_of_step(self) -> bool:
        """Called after the device caught up. Returns whether enough passes were measured; then the line is written."""
        ready = {name: self._clock.between(self._begin, stamp) for name, stamp in self._stamps.items()}
        if not ready:
            return False
        self._passes.append(max(ready.values()))
        for name, seconds in ready.items():
            self._seconds[name].append(seconds)
        if len(self._passes) < STEPS:
            return False
        for hook in self._hooks:
            hook.remove()
        self._write()
        return True

    def _write(self) -> None:
        """Journals tensors in the order of the model. One that no pass reached counts as ready at the end."""
        full_pass = median(self._passes)
        tensors = [
            {"name": name, "shape": list(parameter.shape), "seconds": median(self._seconds[name] or [full_pass])}
            for name, parameter in self._parameters.items()
        ]
        self._journal.write("profile", steps=STEPS, backward_seconds=full_pass, tensors=tensors, sums=self._sums)
