"""Replicas: every worker trains alone on its share of each batch and nothing is exchanged.

It is the yardstick: the same work on the same machines without communication. What a strategy is slower than this is the
price of its communication. The run's model is worker 0's.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn

from lockstep import faults
from lockstep.parallel.agreement import AgreeLater
from lockstep.parallel.claims import shares_alone
from lockstep.parallel.diverging_models import DivergingModels
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
from lockstep.parallel.update import Updater


class Replicas:
    name = "replicas"
    together = True
    lockstep = False
    exact = True
    ahead = 4
    members = None

    def setup(
        self,
        module: nn.Module,
        make_optimizer: MakeOptimizer,
        clock: Clock,
        context: Context,
        example: Any,
    ) -> None:
        self._module, self.context = module, context
        self.updater = Updater(module, make_optimizer, context.clip, context.loss_scale)
        self.models = DivergingModels(self.name, self.updater, context.team)
        self.agreement = AgreeLater(context.team)

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
        faults.at("merge")
        return Outcome(*self.updater.apply(learning_rate))

    def agree(self, loss_sum: float, stop: bool) -> Agreed:
        return self.agreement.agree(loss_sum, stop)

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        return self.models.together(mean=False)

    def state(self) -> State:
        return self.models.state()

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        return self.models.load(scalars, private)

    def finish(self) -> None:
        self.agreement.finish()
