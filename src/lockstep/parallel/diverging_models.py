"""Workers whose models are not the same: one model that stands for all when it is looked at, and each one's own when
training goes on. Both are saved."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.parallel.strategy import FindTensor, Snapshot, State
from lockstep.parallel.update import Updater
from lockstep.team import Team


class DivergingModels:
    """The state that other strategies can use is the model that stands for all, and worker 0's optimizer."""

    def __init__(self, name: str, updater: Updater, team: Team) -> None:
        self.name, self.updater, self.team = name, updater, team
        self._own: dict[str, Tensor] | None = None  # while another model is in its place

    @contextmanager
    def together(self, mean: bool) -> Iterator[Snapshot]:
        """Puts the mean of all models, or worker 0's, in the place of each one's own for a while."""
        values = self.updater.module.state_dict()
        self._own = {name: value.clone() for name, value in values.items()}
        with torch.no_grad():
            for value in values.values():
                if mean and value.is_floating_point():
                    dist.all_reduce(value)
                    value /= self.team.size
                else:
                    dist.broadcast(value, 0)
        try:
            yield Snapshot(self.updater.module, self.team)
        finally:
            with torch.no_grad():
                for name, value in values.items():
                    value.copy_(self._own[name])
            self._own = None

    def state(self) -> State:
        state = self.updater.state()
        state.scalars[f"{self.name}.workers"] = float(self.team.size)
        if self._own is None:  # to be filled
            return state
        moments = {name: tensor for name, tensor in state.tensors.items() if name.startswith("optimizer.")}
        state.private |= {self._mine(name): tensor for name, tensor in self._own.items()}
        state.private |= {
            self._mine(name): torch.tensor(value, dtype=torch.float64) for name, value in state.scalars.items()
        }
        if not self.team.primary:
            state.private |= {self._mine(name): tensor for name, tensor in moments.items()}
            state.tensors = {name: tensor for name, tensor in state.tensors.items() if name not in moments}
        return state

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        if scalars.get(f"{self.name}.workers") != self.team.size:
            reset = self.updater.load(scalars)
            return [*reset, "all workers start from the same model and the same averages of gradients"]
        own = {name: private(self._mine(name)) for name in scalars}
        reset = self.updater.load(scalars | {name: float(value) for name, value in own.items() if value is not None})
        with torch.no_grad():
            for name, tensor in self.updater.state().tensors.items():
                found = private(self._mine(name))
                if found is not None:
                    tensor.copy_(found)
        return reset

    def _mine(self, name: str) -> str:
        return f"{self.name}.worker-{self.team.rank}.{name}"
