"""One process: no gradient crosses anything."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn

from lockstep import faults
from lockstep.parallel.claims import shares_of_all
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


class Single:
    name = "single"
    together = True
    lockstep = True
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

    @property
    def module(self) -> nn.Module:
        return self._module

    def claims(
        self, order: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B]]:
        return shares_of_all(order, batches, first, self.context.team)

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
        return Agreed(loss_sum, stop)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        yield Snapshot(self._module, self.context.team)

    def state(self) -> State:
        return self.updater.state()

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        return self.updater.load(scalars)

    def finish(self) -> None:
        pass
