"""Local: workers train alone on their shares and meet every few steps (local SGD, DiLoCo).

At a meeting the mean of the workers' movements since the last one is taken for a gradient, and an outer optimizer with
Nesterov momentum moves the common model by it; all go on from there. Communication is divided by the steps between.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep import faults
from lockstep.ablation import disabled
from lockstep.dtypes import DTYPES
from lockstep.parallel.agreement import AgreeLater
from lockstep.parallel.claims import shares_alone
from lockstep.parallel.compress import ring_bytes
from lockstep.parallel.diverging_models import DivergingModels
from lockstep.parallel.flat_parameters import FlatParameters
from lockstep.parallel.strategy import (
    Agreed,
    B,
    BatchSplitter,
    Claim,
    Clock,
    Context,
    FindTensor,
    MakeOptimizer,
    Outcome,
    Snapshot,
    State,
)
from lockstep.parallel.strategy_settings import LocalSettings
from lockstep.parallel.update import Updater


class LocalSgd:
    name = "local"
    together = True
    lockstep = False
    exact = True
    ahead = 4
    members = None

    def __init__(self, settings: LocalSettings) -> None:
        assert settings.every is not None
        self.every, self.rate = settings.every, settings.outer_rate
        usual = 0.9 if self.every >= 500 else 0.5
        self.momentum = usual if settings.outer_momentum is None else settings.outer_momentum
        self.format = DTYPES[settings.gradients]
        self.bucket_mb = settings.bucket_mb
        self.silent = "communication" in disabled()

    def setup(
        self,
        module: nn.Module,
        make_optimizer: MakeOptimizer,
        clock: Clock,
        context: Context,
        example: Any,
    ) -> None:
        self._module, self.clock, self.context = module, clock, context
        self.flat = FlatParameters(module)
        self.updater = Updater(module, make_optimizer, context.clip, context.loss_scale)
        self.models = DivergingModels(self.name, self.updater, context.team)
        self.agreement = AgreeLater(context.team)
        self.common = self.flat.values.clone()  # where all stood after the last meeting
        self.speed = torch.zeros_like(self.common)  # the outer momentum
        self.packet = max(1, int(self.bucket_mb * 2**20) // self.common.element_size())  # values that travel at once
        self.alone = 0  # steps since the last meeting

    @property
    def module(self) -> nn.Module:
        return self._module

    def claims(
        self, order: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B]]:
        return shares_alone(order, batches, first, self.context.team)

    def begin(self, claim: Claim[B]) -> None:
        pass

    def micro(self, last: bool) -> nullcontext[None]:
        return nullcontext()

    def backward(self, loss_sum: Tensor, target_words: int) -> None:
        self.updater.backward(loss_sum / target_words)

    def commit(self, learning_rate: float) -> Outcome:
        applied, norm = self.updater.apply(learning_rate)
        self.alone += 1
        if self.alone < self.every:
            return Outcome(applied, norm)
        faults.at("merge")
        begin = self.clock.stamp()
        sent = self._meet()
        self.alone = 0
        self.clock.move("update", "merge", self.clock.since(begin))
        return Outcome(applied, norm, sent)

    @torch.no_grad()
    def _meet(self) -> int:
        """Returns the bytes that this worker sent. What is not sent yet is computed while packets travel."""
        wholes = (self.common, self.speed, self.flat.values)
        packets = list(zip(*(whole.split(self.packet) for whole in wholes), strict=True))
        travelling: list[tuple[Tensor, dist.Work | None]] = []
        for common, _, values in packets:
            movement = torch.sub(common, values, out=values).to(self.format)  # of the model only this is needed now
            travelling.append((movement, None if self.silent else dist.all_reduce(movement, async_op=True)))
        sent = 0
        for (common, speed, values), (movement, work) in zip(packets, travelling, strict=True):
            if work is not None:
                work.wait()
                sent += ring_bytes(movement.numel() * movement.element_size(), self.context.size)
            gradient = values.copy_(movement).div_(self.context.size)
            speed.mul_(self.momentum).add_(gradient)
            common.sub_(gradient.add_(speed, alpha=self.momentum), alpha=self.rate)
            values.copy_(common)
        return sent

    def agree(self, loss_sum: float, stop: bool) -> Agreed:
        return self.agreement.agree(loss_sum, stop)

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """After a meeting all models are the same; between meetings their mean stands for them."""
        return self.models.together(mean=self.alone > 0)

    def state(self) -> State:
        state = self.models.state()
        state.scalars["local.alone"] = float(self.alone)
        state.private |= {"local.common": self.common, "local.speed": self.speed}
        return state

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        reset = self.models.load(scalars, private)
        common, speed = private("local.common"), private("local.speed")
        if common is None or speed is None:
            self.common.copy_(self.flat.values)
            return [*reset, "the outer momentum starts anew"]
        self.speed.copy_(speed)
        if scalars["local.workers"] == self.context.size:
            self.common.copy_(common)
            self.alone = int(scalars["local.alone"])
        else:
            self.common.copy_(self.flat.values)
            reset.append("the meeting that was due is put off: the workers' mean is the new common model")
        return reset

    def finish(self) -> None:
        self.agreement.finish()
