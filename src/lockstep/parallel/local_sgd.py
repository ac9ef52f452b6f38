"""Local SGD and DiLoCo: workers train alone on their shares and synchronize every few steps.

At a synchronization the mean of the workers' movements since the last one is taken as a gradient. An outer optimizer with
Nesterov momentum moves the common model by it, and all workers continue from there. Communication is divided by the
number of steps between synchronizations.
"""

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep import faults
from lockstep.dtypes import DTYPES
from lockstep.parallel.diverging_models import DivergingModels
from lockstep.parallel.exchange import ring_bytes
from lockstep.parallel.flat_parameters import FlatParameters
from lockstep.parallel.optimizers import MakeOptimizer
from lockstep.parallel.strategy import FindTensor, Outcome, Stamp
from lockstep.parallel.strategy_settings import LocalSettings
from lockstep.parallel.update import State

FP16_SCALE = 2.0**8
"""By which movements are multiplied that travel in fp16, whose smallest values are coarse. Movements of up to 256 fit."""


class LocalSgd(DivergingModels):
    name = "local"

    def __init__(self, settings: LocalSettings) -> None:
        assert settings.every is not None
        self.every, self.rate = settings.every, settings.outer_rate
        default_momentum = 0.9 if self.every >= 500 else 0.5
        self.momentum = default_momentum if settings.outer_momentum is None else settings.outer_momentum
        self.dtype = DTYPES[settings.gradients]
        self.scale = FP16_SCALE if settings.gradients == "fp16" else 1.0
        self.bucket_mb = settings.bucket_mb

    def connect(self, make_optimizer: MakeOptimizer, example: object) -> None:
        self.flat = FlatParameters(self.raw_module)
        super().connect(make_optimizer, example)
        self.common = self.flat.values.clone()  # the model after the last synchronization
        self.outer_momentum = torch.zeros_like(self.common)
        self.packet = max(1, int(self.bucket_mb * 2**20) // self.common.element_size())  # values that travel at once
        self.steps_alone = 0  # since the last synchronization

    def commit(self, learning_rate: float) -> Outcome:
        outcome = self.update(learning_rate)
        self.steps_alone += 1
        self._synchronization: tuple[Stamp, Stamp] | None = None
        if self.steps_alone < self.every:
            return outcome
        faults.at("merge")
        begin = self.clock.stamp()
        sent = self._synchronize()
        self.steps_alone = 0
        self._synchronization = begin, self.clock.stamp()
        return replace(outcome, bytes_sent=sent)

    def settle(self, outcome: Outcome) -> Outcome:
        if self._synchronization is not None:
            self.clock.move("update", "merge", self.clock.between(*self._synchronization))
        return outcome

    @torch.no_grad()
    def _synchronize(self) -> int:
        """Moves all workers to the new common model; returns the bytes that this worker sent. Packets are prepared while
        earlier ones travel."""
        vectors = (self.common, self.outer_momentum, self.flat.values)
        packets = list(zip(*(vector.split(self.packet) for vector in vectors), strict=True))
        in_flight: list[tuple[Tensor, dist.Work | None]] = []
        for common, _, values in packets:
            movement = torch.sub(common, values, out=values)  # `values` is overwritten below
            movement = (movement if self.scale == 1.0 else movement.mul_(self.scale)).to(self.dtype)
            in_flight.append((movement, None if self.silent else dist.all_reduce(movement, async_op=True)))
        sent = 0
        for (common, momentum, values), (movement, work) in zip(packets, in_flight, strict=True):
            if work is not None:
                work.wait()
                sent += ring_bytes(movement.numel() * movement.element_size(), self.team.size)
            gradient = values.copy_(movement).div_(self.scale * self.team.size)
            momentum.mul_(self.momentum).add_(gradient)
            common.sub_(gradient.add_(momentum, alpha=self.momentum), alpha=self.rate)
            values.copy_(common)
        return sent

    def averages(self) -> bool:
        """After a synchronization all models are equal; between two, their mean stands for them."""
        return self.steps_alone > 0

    def state(self) -> State:
        state = super().state()
        state.scalars["local.alone"] = float(self.steps_alone)
        state.private |= {"local.common": self.common, "local.speed": self.outer_momentum}
        return state

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        reset = super().load(scalars, private)
        common, momentum = private("local.common"), private("local.speed")
        if common is None or momentum is None:
            self.common.copy_(self.flat.values)
            return [*reset, "the outer momentum starts from zero"]
        self.outer_momentum.copy_(momentum)
        if scalars["local.workers"] == self.team.size:
            self.common.copy_(common)
            self.steps_alone = int(scalars["local.alone"])
        else:
            self.common.copy_(self.flat.values)
            reset.append(
                "the next synchronization is a full interval away: the mean of the workers is the common model"
            )
        return reset
