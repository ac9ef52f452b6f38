"""One process: no gradient crosses anything."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn

from lockstep import faults
from lockstep.parallel.settings import StrategySettings
from lockstep.parallel.strategy import Agreed, B, Claim, Clock, Context, MakeOptimizer, Order, Outcome, State
from lockstep.parallel.update import Updater


class Single:
    name = "single"
    lockstep = True
    exact = True

    def __init__(self, settings: StrategySettings) -> None:
        pass

    def setup(
        self,
        module: nn.Module,
        make_optimizer: MakeOptimizer,
        clock: Clock,
        context: Context,
        example: Any,
    ) -> None:
        self._module = module
        self.updater = Updater(module, make_optimizer, context.clip, context.loss_scale)

    @property
    def module(self) -> nn.Module:
        return self._module

    def claims(self, order: Order[B], batches: Iterator[B]) -> Iterator[Claim[B]]:
        for batch in batches:
            yield Claim(batch, order.share(batch, 0, 1))

    def micro(self, last: bool) -> nullcontext[None]:
        return nullcontext()

    def backward(self, loss_sum: Tensor, target_words: int) -> None:
        self.updater.scaled(loss_sum / target_words).backward()

    def commit(self, learning_rate: float) -> Outcome:
        faults.at("merge")
        return Outcome(*self.updater.apply(learning_rate))

    def agree(self, loss_sum: float, stop: bool) -> Agreed:
        return Agreed(loss_sum, stop)

    @contextmanager
    def quiesce(self) -> Iterator[nn.Module]:
        yield self._module

    def state(self) -> State:
        return self.updater.state()

    def load(self, scalars: dict[str, float]) -> list[str]:
        return self.updater.load(scalars)
