"""All-reduce: every worker has the whole model, and gradients are summed over all workers while backward computes.

torch's DistributedDataParallel fills the buckets. Our communication hook sends them, so that sums stay sums (the loss is
already divided by the global word count) and the exchange can be timed.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep import faults, heartbeat
from lockstep.dtypes import DTYPES
from lockstep.parallel.exchange import ring_bytes, stamped_seconds
from lockstep.parallel.layer_sums import LayerSums, connect_layers, sum_over
from lockstep.parallel.optimizers import MakeOptimizer
from lockstep.parallel.skip_compiler import ddp_without_compiler
from lockstep.parallel.strategy import FindTensor, Outcome, Stamp, Strategy
from lockstep.parallel.strategy_settings import AllReduceSettings
from lockstep.parallel.update import State

ONE_BUCKET_MB = 2.0**20
"""1 TiB: larger than any model."""
Summed = torch.futures.Future[Tensor]


class Compression(Protocol):
    """Sums a bucket over all workers. (torch's stock hooks average, and refuse bf16 on Gloo.)"""

    one_bucket: bool  # all gradients must come in one bucket

    def sum(self, bucket: dist.GradBucket) -> tuple[Summed, int]:
        """Starts the sum; returns its future and the bytes that a worker puts into the ring."""
        ...

    def reset(self) -> None:
        """Drops what is stored of earlier gradients."""
        ...

    def add_to(self, state: State) -> None: ...
    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]: ...


class Rounding:
    """Sends gradients in fp32, or rounded to 16 bits."""

    one_bucket = False

    def __init__(self, gradients: str) -> None:
        self.dtype = DTYPES[gradients]

    def sum(self, bucket: dist.GradBucket) -> tuple[Summed, int]:
        buffer = bucket.buffer()
        sent = buffer.to(self.dtype)  # the same tensor for fp32
        work = dist.all_reduce(sent, async_op=True)
        assert work is not None

        def copy_back(future: torch.futures.Future[list[Tensor]]) -> Tensor:
            future.value()  # raises if the exchange failed; it sums in place
            return sent if sent is buffer else buffer.copy_(sent)

        return work.get_future().then(copy_back), sent.numel() * sent.element_size()

    def reset(self) -> None:
        pass

    def add_to(self, state: State) -> None:
        pass

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        return []


class AllReduce(Strategy):
    name = "allreduce"

    def __init__(self, settings: AllReduceSettings) -> None:
        self.settings, self.sends_gradients_in = settings, settings.gradients

    def connect(self, make_optimizer: MakeOptimizer, example: object) -> None:
        super().connect(make_optimizer, example)
        device = self.team.device
        self.sums = LayerSums(self.clock, sum_over(self.team, self.raw_module))
        if not self.silent:
            connect_layers(self.raw_module, self.sums)
        self.compression = self._make_compression()
        with ddp_without_compiler():
            self._ddp = DistributedDataParallel(
                self.raw_module,
                device_ids=[device] if device.type == "cuda" else None,
                bucket_cap_mb=ONE_BUCKET_MB if self.compression.one_bucket else self.settings.bucket_mb,
                gradient_as_bucket_view=True,
                forward_sync_buffers=False,
            )
        self._ddp.register_comm_hook(None, self._send)
        self._reset()
        # DDP rebuilds its buckets after the first backward, and a sum depends on its buckets: one backward before the
        # first step of every launch makes a resumed run add in the same order as an uninterrupted one.
        self._ddp(example).mul(0.0).backward()
        self.updater.optimizer.drop_gradients()
        self.sums.reset()
        self._reset()

    def _make_compression(self) -> Compression:
        if self.settings.gradients != "powersgd":
            return Rounding(self.settings.gradients)
        from lockstep.parallel.powersgd import PowerSgd

        return PowerSgd(self.settings, self.team)

    def _reset(self) -> None:
        self._spans: list[list[Stamp]] = []  # [ready, summed] of every bucket
        self._bytes = 0

    def _send(self, _: object, bucket: dist.GradBucket) -> Summed:
        """The communication hook: DDP calls it during backward, as soon as a bucket is full."""
        is_skipped = faults.at("merge") == "skip"
        heartbeat.beat("merge")
        buffer = bucket.buffer()
        span = [self.clock.stamp()]
        self._spans.append(span)
        if self.silent or is_skipped:
            span.append(span[0])
            unchanged: Summed = torch.futures.Future()
            unchanged.set_result(buffer)
            return unchanged
        summed, size = self.compression.sum(bucket)
        self._bytes += size

        def stamp_end(future: Summed) -> Tensor:
            span.append(self.clock.stamp())
            return future.value()

        return summed.then(stamp_end)

    @property
    def module(self) -> nn.Module:
        return self._ddp

    def micro(self, last: bool) -> AbstractContextManager[object]:
        return nullcontext() if last else self._ddp.no_sync()

    def backward(self, loss_sum: Tensor, target_words: int) -> None:
        self.sums.phase = "backward"
        super().backward(loss_sum, target_words)

    def commit(self, learning_rate: float) -> Outcome:
        self._backward_end = self.clock.stamp()
        return self.update(learning_rate)

    def settle(self, outcome: Outcome) -> Outcome:
        exposed = self.clock.between(self._spans[-1][0], self._backward_end)
        self.clock.move("backward", "merge", exposed)
        sent = ring_bytes(self._bytes, self.team.size)
        if not outcome.applied:
            self.compression.reset()
        overlapped = max(0.0, stamped_seconds(self.clock, self._spans) - exposed)
        self._reset()
        return self.sums.settle(self.team.size, replace(outcome, bytes_sent=sent, merge_overlapped=overlapped))

    def state(self) -> State:
        state = super().state()
        self.compression.add_to(state)
        return state

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        return super().load(scalars, private) + self.compression.load(scalars, private)
