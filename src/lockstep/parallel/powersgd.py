"""PowerSGD: gradients travel as products of two low-rank matrices."""

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from lockstep.parallel.allreduce import Summed
from lockstep.parallel.strategy import FindTensor
from lockstep.parallel.strategy_settings import AllReduceSettings
from lockstep.parallel.update import State
from lockstep.team import Team


class PowerSgd:
    """torch's PowerSGD. What compression lost is added to the next gradient, and the next approximation starts from the
    last, so both are state."""

    def __init__(self, settings: AllReduceSettings, team: Team) -> None:
        self.team = team
        # Several buckets at once get mixed up on Gloo, and torch's hook waits for a GPU once per bucket.
        self.one_bucket = True
        self.hook_state = PowerSGDState(
            None,
            matrix_approximation_rank=settings.powersgd_rank,
            start_powerSGD_iter=settings.powersgd_start,
            compression_stats_logging_frequency=2**31,
        )
        self.step: int | None = None  # steps so far; None before the backward pass that sorts the buckets

    def sum(self, bucket: dist.GradBucket) -> tuple[Summed, int]:
        values, state = bucket.buffer().numel(), self.hook_state
        if bucket.is_last():
            self.step = 0 if self.step is None else self.step + 1
        if self.step == 0:
            state.iter = 0
        before = state.total_numel_after_compression
        bucket.buffer().mul_(self.team.size)  # the hook averages, and stores its errors at that scale
        summed = powerSGD_hook(state, bucket)
        compressed = state.total_numel_after_compression - before
        return summed, (compressed or values) * bucket.buffer().element_size()

    def reset(self) -> None:
        state = self.hook_state
        for memory in (state.error_dict, state.p_memory_dict, state.q_memory_dict):
            memory.clear()

    def add_to(self, state: State) -> None:
        own = self.hook_state
        state.scalars |= {"powersgd.workers": float(self.team.size), "powersgd.step": float(self.step or 0)}
        for index, error in own.error_dict.items():
            state.private[f"powersgd.worker-{self.team.rank}.error.{index}"] = error
        for index, matrices in own.q_memory_dict.items():
            state.private[f"powersgd.p.{index}"] = own.p_memory_dict[index]
            state.private[f"powersgd.q.{index}"] = matrices

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        self.reset()
        if scalars.get("powersgd.workers") != self.team.size:
            return ["PowerSGD starts from uncompressed gradients"]
        state, device = self.hook_state, self.team.device
        self.step = state.iter = int(scalars["powersgd.step"])
        index = 0
        while (error := private(f"powersgd.worker-{self.team.rank}.error.{index}")) is not None:
            state.error_dict[index] = error.to(device)
            for matrices, name in ((state.p_memory_dict, "p"), (state.q_memory_dict, "q")):
                saved = private(f"powersgd.{name}.{index}")
                assert saved is not None
                matrices[index] = saved.to(device)
            index += 1
        return []
