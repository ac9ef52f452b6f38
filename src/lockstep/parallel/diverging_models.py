"""The base of strategies whose workers train different models (replicas, local SGD).

One model stands for all when a snapshot is taken: the mean, or worker 0's. Training continues with each worker's own
model. Both are saved.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.parallel.optimizers import MakeOptimizer
from lockstep.parallel.strategy import Agreed, B, BatchSplitter, Claim, FindTensor, Snapshot, Strategy
from lockstep.parallel.update import State
from lockstep.team import Team


class DelayedAgreement:
    """Agrees on stopping without waiting: every worker's wish travels while steps continue, and all workers hear it at
    the same step, `STEPS` later. A worker waits only when it is further ahead than that."""

    STEPS = 4

    def __init__(self, team: Team) -> None:
        self._group = team.facts
        self._sent: deque[tuple[Tensor, dist.Work]] = deque()

    def agree(self, stop: bool) -> bool:
        wish = torch.tensor([float(stop)])
        work = dist.all_reduce(wish, group=self._group, async_op=True)
        assert work is not None
        self._sent.append((wish, work))
        return len(self._sent) > self.STEPS and self._receive()

    def _receive(self) -> bool:
        wish, work = self._sent.popleft()
        work.wait()
        return bool(wish.item() > 0)

    def finish(self) -> None:
        while self._sent:
            self._receive()


class DivergingModels(Strategy):
    """Every worker computes its share as a separate batch. Other strategies can load the snapshot's model and worker
    0's optimizer state; the workers' own models are private state."""

    makes_one_update = False

    def connect(self, make_optimizer: MakeOptimizer, example: object) -> None:
        super().connect(make_optimizer, example)
        self._agreement = DelayedAgreement(self.team)
        self._own_values: dict[str, Tensor] | None = None  # while a snapshot is in their place

    def claims(
        self, splitter: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B]]:
        for step, batch in enumerate(batches, first):
            share = splitter.share(batch, self.team.rank, self.team.size)
            yield Claim(step, batch, share, max(1, splitter.target_words(share)), self.team.rank)

    def agree(self, loss_sum: float, stop: bool) -> Agreed:
        return Agreed(loss_sum, stop if self.silent else self._agreement.agree(stop))

    def averages(self) -> bool:
        """Whether a snapshot is the mean of all models rather than worker 0's."""
        return False

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        values = self.raw_module.state_dict()
        self._own_values = {name: value.clone() for name, value in values.items()}
        averages = self.averages()
        with torch.no_grad():
            for value in values.values():
                if averages and value.is_floating_point():
                    dist.all_reduce(value)
                    value /= self.team.size
                else:
                    dist.broadcast(value, 0)
        try:
            yield Snapshot(self.raw_module, self.team)
        finally:
            with torch.no_grad():
                for name, value in values.items():
                    value.copy_(self._own_values[name])
            self._own_values = None

    def state(self) -> State:
        state = self.updater.state()
        state.scalars[f"{self.name}.workers"] = float(self.team.size)
        if self._own_values is None:  # the tensors are about to be loaded
            return state
        moments = {name: tensor for name, tensor in state.tensors.items() if name.startswith("optimizer.")}
        state.private |= {self._private_name(name): tensor for name, tensor in self._own_values.items()}
        state.private |= {
            self._private_name(name): torch.tensor(value, dtype=torch.float64) for name, value in state.scalars.items()
        }
        if not self.team.primary:
            state.private |= {self._private_name(name): tensor for name, tensor in moments.items()}
            state.tensors = {name: tensor for name, tensor in state.tensors.items() if name not in moments}
        return state

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        if scalars.get(f"{self.name}.workers") != self.team.size:
            reset = self.updater.load(scalars)
            return [*reset, "all workers start from the same model and the same optimizer state"]
        own = {name: private(self._private_name(name)) for name in scalars}
        reset = self.updater.load(scalars | {name: float(value) for name, value in own.items() if value is not None})
        with torch.no_grad():
            for name, tensor in self.updater.state().tensors.items():
                saved = private(self._private_name(name))
                if saved is not None:
                    tensor.copy_(saved)
        return reset

    def _private_name(self, name: str) -> str:
        return f"{self.name}.worker-{self.team.rank}.{name}"

    def finish(self) -> None:
        self._agreement.finish()
