"""What is measured once per launch: how much arithmetic the model takes, how fast this worker multiplies at best, what
the link between the workers carries. It is done inside the warm-up: neither the first update nor an average suffers."""

import os
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from lockstep.dtypes import DTYPES
from lockstep.files import write_json
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Journal
from lockstep.team import Team
from lockstep.train.gradient_readiness import Readiness
from lockstep.train.precision import emulated
from lockstep.watch import link_probe
from lockstep.watch.clock import PhaseClock
from lockstep.watch.flops import FlopCount
from lockstep.watch.peak import product_peak
from lockstep.watch.sampler import link_bits

COUNTED = (1, 2, 3)
"""A worker's steps in a launch, from 0, that are counted. One more warm-up step follows, and fills the caches again."""
PEAK_SECONDS = 0.04
"""For products after each of them; the best counts, because another program may have disturbed the others."""


@dataclass
class Probes:
    """The loop tells where it is, and every worker journals the figures. Those of the model are choices of the run: a
    launch that goes on with the same workers is measured against the same peak."""

    run: RunDirectory
    team: Team
    journal: Journal
    choices: dict[str, Any]
    devices: list[str]  # names of all workers' devices
    together: bool  # do all workers come to every step boundary? Only then can they exchange anything there
    enabled: bool = True
    readiness: Readiness | None = None
    _done: int = 0  # steps of this launch
    _count: FlopCount | None = None  # of the step that is being computed
    _flops: list[int] = field(default_factory=list)  # of each counted step
    _words: int = 0
    _peak: float = 0.0
    _seconds: float = 0.0

    def __post_init__(self) -> None:
        choices = self.choices
        threads = choices["threads"][str(self.team.size)]
        self._conditions = {"precision": choices["precision"], "threads": threads, "devices": self.devices}
        before = [entry for entry in choices.get("measured", []) if entry["conditions"] == self._conditions]
        self._known: dict[str, Any] | None = before[0] if before else None

    def watch(self, module: nn.Module, clock: PhaseClock) -> None:
        """Also journals when each gradient is ready, where LOCKSTEP_PROFILE=1 asks for it (`lockstep plan` does)."""
        if os.environ.get("LOCKSTEP_PROFILE") == "1":
            self.readiness = Readiness(module, clock, self.journal)

    def before_backward(self) -> None:
        if self.readiness is not None:
            self.readiness.begin()

    def counting(self) -> AbstractContextManager[Any]:
        """A new one for every step, around forward and backward of its micro-batches."""
        self._count = FlopCount() if self.enabled and self._known is None and self._done in COUNTED else None
        return self._count or nullcontext()

    def after_step(self, words: int, parameters: int) -> None:
        """With this worker's target words in the step, and the size of the model."""
        index, self._done = self._done, self._done + 1
        if self.readiness is not None and index > COUNTED[-1] and self.readiness.end_of_step():
            self.readiness = None
        if not self.enabled or index not in COUNTED:
            return
        if self._count is not None:
            begin = time.perf_counter()
            self._flops.append(self._count.total)
            self._words += words
            self._peak = max(self._peak, self._best_product())
            self._seconds += time.perf_counter() - begin
        if index == COUNTED[-1]:
            self._tell_model(parameters)
            if self.team.size > 1 and self.together:
                self._tell_link()

    def _best_product(self) -> float:
        device, precision = self.team.device, self.choices["precision"]
        try:
            return product_peak(device, DTYPES["fp32" if emulated(precision, device) else precision], PEAK_SECONDS)
        except RuntimeError:  # a GPU whose memory is full
            return 0.0

    def _tell_model(self, parameters: int) -> None:
        found = self._known or self._measured()
        self.journal.write(
            "model",
            attempt=self.choices["launches"],
            parameters=parameters,
            flops_per_word=found["flops_per_word"],
            peak_flops=found["peak_flops"][self.team.rank if self.together else 0] or None,
            seconds=self._seconds,
        )

    def _measured(self) -> dict[str, Any]:
        mine = (sum(self._flops) if all(self._flops) else 0, self._words, self._peak)
        flops, words, peaks = zip(*(self.team.gather(mine) if self.together else [mine]), strict=True)
        per_word = sum(flops) / sum(words) if all(flops) and sum(words) else None
        found = {"conditions": self._conditions, "flops_per_word": per_word, "peak_flops": peaks}
        if self.team.primary and self.together:
            write_json(self.run.choices, self.choices | {"measured": [*self.choices.get("measured", []), found]})
        return found

    def _tell_link(self) -> None:
        begin = time.perf_counter()
        name = link_probe.interface(self.team)
        bits, latency = link_probe.probe(self.team)
        self.journal.write(
            "link",
            attempt=self.choices["launches"],
            interface=name,
            link_bits=name and link_bits(name),
            probe_bits=bits,
            latency_seconds=latency,
            seconds=time.perf_counter() - begin,
        )
