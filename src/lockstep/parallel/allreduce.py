"""All-reduce: every worker holds the whole model, and gradients are summed over all workers while backward computes.

torch's DistributedDataParallel keeps the buckets; a hook of ours sends them, so that sums stay sums (the loss is divided
by the global word count beforehand) and the exchange can be timed.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep import faults
from lockstep.ablation import disabled
from lockstep.parallel.agreement import agree_now
from lockstep.parallel.claims import shares_of_all
from lockstep.parallel.compress import make_compression, ring_bytes
from lockstep.parallel.layer_sums import LayerSums, among, connect
from lockstep.parallel.spans import busy
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
from lockstep.parallel.strategy_settings import AllReduceSettings
from lockstep.parallel.update import Updater

ONE_BUCKET_MB = 2.0**20


@contextmanager
def _compiler_left_out() -> Iterator[None]:
    """Keeps DDP from importing torch's compiler, which takes two seconds, only to ask it whether to change the reducer
    and to mark a method as not to be compiled. Unless it is there already we compile nothing, and the answers are known."""
    if "torch._dynamo" in sys.modules:
        yield
        return
    plain = inspect.unwrap(DistributedDataParallel._inside_ddp_forward)
    setattr(plain, "__dynamo_disable", plain)  # noqa: B010
    # As an attribute of torch: asking for the missing one would import it.
    vars(torch)["_dynamo"] = SimpleNamespace(utils=SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization"))
    try:
        yield
    finally:
        del vars(torch)["_dynamo"]


class AllReduce:
    name = "allreduce"
    together = True
    lockstep = True
    exact = True
    ahead = 4
    members = None

    def __init__(self, settings: AllReduceSettings) -> None:
        self.settings = settings
        self.silent = "communication" in disabled()

    def setup(
        self,
        module: nn.Module,
        make_optimizer: MakeOptimizer,
        clock: Clock,
        context: Context,
        example: Any,
    ) -> None:
        self.clock, self.context, self.raw = clock, context, module
        self.updater = Updater(module, make_optimizer, context.clip, context.loss_scale)
        self.sums = LayerSums(clock, among(context.team))
        if not self.silent:
            connect(module, self.sums)
        self.compression = make_compression(self.settings, context.rank, context.size, context.device)
        with _compiler_left_out():
            self._ddp = DistributedDataParallel(
                module,
                device_ids=[context.device] if context.device.type == "cuda" else None,
                bucket_cap_mb=ONE_BUCKET_MB if self.compression.one_bucket else self.settings.bucket_mb,
                gradient_as_bucket_view=True,
                forward_sync_buffers=False,
            )
        self._ddp.register_comm_hook(None, self._send)
        self._forget()
        # DDP sorts its buckets after the first backward, and a sum depends on its buckets: one backward before the
        # first step of every launch makes a resumed run add in the same order as an uninterrupted one.
        self._ddp(example).mul(0.0).backward()
        self.updater.optimizer.forget_gradients()
        self.sums.forget()
        self._forget()

    def _forget(self) -> None:
        self._spans: list[list[Any]] = []  # [ready, merged] stamps of every bucket
        self._bytes = 0

    def _send(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        faults.at("merge")
        buffer = bucket.buffer()
        span = [self.clock.stamp()]
        self._spans.append(span)
        if self.silent:
            span.append(span[0])
            unchanged: torch.futures.Future[Tensor] = torch.futures.Future()
            unchanged.set_result(buffer)
            return unchanged
        sums, size = self.compression.sum(bucket)
        self._bytes += size

        def merged(future: torch.futures.Future[Tensor]) -> Tensor:
            span.append(self.clock.stamp())
            return future.value()

        return sums.then(merged)

    @property
    def module(self) -> nn.Module:
        return self._ddp

    def claims(
        self, order: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B]]:
        return shares_of_all(order, batches, first, self.context.team)

    def begin(self, claim: Claim[B]) -> None:
        pass

    def micro(self, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else self._ddp.no_sync()

    def backward(self, loss_sum: Tensor, target_words: int) -> None:
        self.sums.phase = "backward"
        self.updater.backward(loss_sum / target_words)

    def commit(self, learning_rate: float) -> Outcome:
        returned = self.clock.stamp()
        applied, norm = self.updater.apply(learning_rate)  # waits for the device, so that all stamps can be read
        exposed = self.clock.between(self._spans[-1][0], returned)
        self.clock.move("backward", "merge", exposed)
        sent = ring_bytes(self._bytes, self.context.size)
        if not applied:
            self.compression.forget()
        outcome = Outcome(applied, norm, sent, max(0.0, busy(self.clock, self._spans) - exposed))
        outcome = self.sums.settle(self.context.size, outcome)
        self._forget()
        return outcome

    def agree(self, loss_sum: float, stop: bool) -> Agreed:
        return agree_now(loss_sum, stop, self.context.team)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        yield Snapshot(self.raw, self.context.team)

    def state(self) -> State:
        state = self.updater.state()
        self.compression.add_to(state)
        return state

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        return self.updater.load(scalars) + self.compression.load(scalars, private)

    def finish(self) -> None:
        pass
