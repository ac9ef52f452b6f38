"""How a packet of gradients is summed over the workers: as it is, in 16 bits, or as products of thin matrices."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.dtypes import DTYPES
from lockstep.parallel.strategy import FindTensor, State
from lockstep.parallel.strategy_settings import AllReduceSettings

Sums = torch.futures.Future[Tensor]


class Compression(Protocol):
    """Sums a bucket over all workers in its own way. (torch's stock hooks average, and refuse bf16 on Gloo.)"""

    one_bucket: bool  # must all gradients come in one packet?

    def sum(self, bucket: dist.GradBucket) -> tuple[Sums, int]:
        """The sums to come, and how many bytes of them every worker gives into the ring."""
        ...

    def forget(self) -> None:
        """Drops what was kept of earlier gradients."""
        ...

    def add_to(self, state: State) -> None: ...
    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]: ...


class Rounded:
    """fp32, or rounded to 16 bits for the journey."""

    one_bucket = False

    def __init__(self, gradients: str) -> None:
        self.dtype = DTYPES[gradients]

    def sum(self, bucket: dist.GradBucket) -> tuple[Sums, int]:
        buffer = bucket.buffer()
        sent = buffer.to(self.dtype)  # the same tensor for fp32
        work = dist.all_reduce(sent, async_op=True)
        assert work is not None

        def back(future: torch.futures.Future[list[Tensor]]) -> Tensor:
            summed = future.value()[0]
            return summed if sent is buffer else buffer.copy_(summed)

        return work.get_future().then(back), sent.numel() * sent.element_size()

    def forget(self) -> None:
        pass

    def add_to(self, state: State) -> None:
        pass

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        return []


class PowerSGD:
    """torch's PowerSGD. What compression lost is added to the next gradient, and the next approximation starts from the
    last, so both are state."""

    def __init__(self, settings: AllReduceSettings, rank: int, size: int, device: torch.device) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

        self.hook: Callable[[Any, dist.GradBucket], Sums] = powerSGD_hook
        self.rank, self.size, self.device = rank, size, device
        self.one_bucket = device.type == "cpu"  # several at once get mixed up on Gloo
        self.kept = PowerSGDState(
            None,
            matrix_approximation_rank=settings.powersgd_rank,
            start_powerSGD_iter=settings.powersgd_start,
            compression_stats_logging_frequency=2**31,
        )
        self.step: int | None = None  # steps so far; None: the backward pass that sorts the buckets is still to come

    def sum(self, bucket: dist.GradBucket) -> tuple[Sums, int]:
        whole, state = bucket.buffer().numel(), self.kept
        if bucket.is_last():
            self.step = 0 if self.step is None else self.step + 1
        if self.step == 0:
            state.iter = 0
        before = state.total_numel_after_compression
        bucket.buffer().mul_(self.size)  # the hook averages, and keeps its errors at that scale
        sums = self.hook(state, bucket)
        compressed = state.total_numel_after_compression - before
        return sums, (compressed or whole) * bucket.buffer().element_size()

    def forget(self) -> None:
        for kept in (self.kept.error_dict, self.kept.p_memory_dict, self.kept.q_memory_dict):
            kept.clear()

    def add_to(self, state: State) -> None:
        state.scalars |= {"powersgd.workers": float(self.size), "powersgd.step": float(self.step or 0)}
        for index, error in self.kept.error_dict.items():
            state.private[f"powersgd.worker-{self.rank}.error.{index}"] = error
        for index, matrices in self.kept.q_memory_dict.items():
            state.private[f"powersgd.p.{index}"] = self.kept.p_memory_dict[index]
            state.private[f"powersgd.q.{index}"] = matrices

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        self.forget()
        if scalars.get("powersgd.workers") != self.size:
            return ["PowerSGD starts anew with whole gradients"]
        self.step = self.kept.iter = int(scalars["powersgd.step"])
        index = 0
        while (error := private(f"powersgd.worker-{self.rank}.error.{index}")) is not None:
            self.kept.error_dict[index] = error.to(self.device)
            for matrices, name in ((self.kept.p_memory_dict, "p"), (self.kept.q_memory_dict, "q")):
                found = private(f"powersgd.{name}.{index}")
                assert found is not None
                matrices[index] = found.to(self.device)
            index += 1
        return []


def make_compression(settings: AllReduceSettings, rank: int, size: int, device: torch.device) -> Compression:
    if settings.gradients == "powersgd":
        return PowerSGD(settings, rank, size, device)
    return Rounded(settings.gradients)


def ring_bytes(size: int, workers: int) -> int:
    """What each worker sends when a ring sums `size` bytes."""
    return size * 2 * (workers - 1) // workers
