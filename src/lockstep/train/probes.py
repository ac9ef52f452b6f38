"""What is measured once per launch: the model's arithmetic, this worker's best rate of matrix products, and the link
between the workers. It happens inside the warm-up, so it delays neither the first update nor any measured step."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import nn

from lockstep.dtypes import DTYPES
from lockstep.models import kernels
from lockstep.run import environment_variables
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Journal
from lockstep.team import Team
from lockstep.train.choices import Choices, Conditions, MeasuredModel
from lockstep.train.gradient_readiness import Readiness
from lockstep.train.precision import is_emulated, uses_tf32
from lockstep.watch import link_probe
from lockstep.watch.clock import PhaseClock
from lockstep.watch.flops import FlopCount
from lockstep.watch.peak import measure_matmul_peak
from lockstep.watch.sampler import read_link_bits

COUNTED = (1, 2, 3)
"""The steps of a launch, from 0, whose arithmetic is counted. One more warm-up step follows and refills the caches."""
PEAK_SECONDS = 0.04
"""For matrix products after each of them. The best counts: another program may have slowed the others."""


@dataclass
class Probes:
    """Every worker journals its figures. Those of the model are kept in choices.json, so that a resumed run with the same
    workers is measured against the same peak."""

    run: RunDirectory
    team: Team
    journal: Journal
    choices: Choices
    devices: list[str]  # names of all workers' devices
    takes_every_step: bool  # all workers reach every step boundary, so they can exchange figures there
    enabled: bool = True
    readiness: Readiness | None = None
    _done: int = 0  # steps of this launch
    _count: FlopCount | None = None  # of the current step
    _flops: list[int] = field(default_factory=list)  # of each counted step
    _words: int = 0
    _peak: float = 0.0
    _seconds: float = 0.0

    def __post_init__(self) -> None:
        choices = self.choices
        threads = choices.threads[str(self.team.size)]
        self._conditions: Conditions = {
            "precision": "tf32" if uses_tf32(choices.precision, self.team.device) else choices.precision,
            "kernels": choices.kernels,
            "threads": threads,
            "devices": self.devices,
        }
        same = [entry for entry in choices.measured if entry["conditions"] == self._conditions]
        self._known: MeasuredModel | None = same[0] if same else None

    def watch(self, module: nn.Module, clock: PhaseClock) -> None:
        """Journals when each gradient is ready, if LOCKSTEP_PROFILE=1 (`lockstep plan` sets it)."""
        if environment_variables.profiles_gradients():
            self.readiness = Readiness(module, clock, self.journal)

    def before_backward(self) -> None:
        if self.readiness is not None:
            self.readiness.begin()

    def count_flops(self) -> AbstractContextManager[object]:
        """Returns a context for forward and backward of one step's micro-batches."""
        self._count = FlopCount() if self.enabled and self._known is None and self._done in COUNTED else None
        return self._count or nullcontext()

    def after_step(self, words: int, parameters: int) -> None:
        """Called with this worker's target words of the step and the model's number of parameters."""
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
            self._journal_model(parameters)
            if self.team.size > 1 and self.takes_every_step:
                self._journal_link()

    def _best_product(self) -> float:
        device, precision = self.team.device, self.choices.precision
        try:
            dtype = DTYPES["fp32" if is_emulated(precision, device) else precision]
            multiply = kernels.multiply if self.choices.kernels == kernels.NAME else torch.mm
            return measure_matmul_peak(device, dtype, PEAK_SECONDS, multiply)
        except RuntimeError:  # a GPU whose memory is full
            return 0.0

    def _journal_model(self, parameters: int) -> None:
        model = self._known or self._measure()
        self.journal.write(
            "model",
            attempt=self.choices.launches,
            parameters=parameters,
            flops_per_word=model["flops_per_word"],
            peak_flops=model["peak_flops"][self.team.rank if self.takes_every_step else 0] or None,
            seconds=self._seconds,
        )

    def _measure(self) -> MeasuredModel:
        own = [sum(self._flops) if all(self._flops) else 0, self._words, self._peak]
        flops, words, peaks = zip(*(self.team.gather(own) if self.takes_every_step else [own]), strict=True)
        per_word = sum(flops) / sum(words) if all(flops) and sum(words) else None
        model: MeasuredModel = {
            "conditions": self._conditions,
            "flops_per_word": per_word,
            "peak_flops": list(peaks),
        }
        if self.team.primary and self.takes_every_step:
            self.choices.measured.append(model)
            self.choices.write(self.run)
        return model

    def _journal_link(self) -> None:
        begin = time.perf_counter()
        name = link_probe.find_interface(self.team)
        bits, latency = link_probe.probe(self.team)
        self.journal.write(
            "link",
            attempt=self.choices.launches,
            interface=name,
            link_bits=name and read_link_bits(name),
            probe_bits=bits,
            latency_seconds=latency,
            seconds=time.perf_counter() - begin,
        )
