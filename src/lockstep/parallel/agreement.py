"""How workers agree on stopping: at once where they wait for each other anyway, some steps later where they do not."""

from collections import deque

import torch
import torch.distributed as dist

from lockstep.ablation import disabled
from lockstep.parallel.strategy import Agreed
from lockstep.team import Team


def agree_now(loss_sum: float, stop: bool, team: Team) -> Agreed:
    """The loss of all workers, and whether any of them wants to stop."""
    if "communication" in disabled():
        return Agreed(loss_sum, stop)
    both = torch.tensor([loss_sum, float(stop)], dtype=torch.float64, device=team.device)
    dist.all_reduce(both, group=team.workers)
    total, stops = both.tolist()
    return Agreed(total, stops > 0)


class AgreeLater:
    """Every worker's wish travels while the steps go on, and is heard by all at the same step, `STEPS` later. A worker
    waits only when it is further ahead than that."""

    STEPS = 4

    def __init__(self, team: Team) -> None:
        self._group = team.facts
        self._sent: deque[tuple[torch.Tensor, dist.Work]] = deque()

    def agree(self, loss_sum: float, stop: bool) -> Agreed:
        if "communication" in disabled():
            return Agreed(loss_sum, stop)
        wish = torch.tensor([float(stop)])
        work = dist.all_reduce(wish, group=self._group, async_op=True)
        assert work is not None
        self._sent.append((wish, work))
        return Agreed(loss_sum, len(self._sent) > self.STEPS and self._hear())

    def _hear(self) -> bool:
        wish, work = self._sent.popleft()
        work.wait()
        return bool(wish.item() > 0)

    def finish(self) -> None:
        while self._sent:
            self._hear()
