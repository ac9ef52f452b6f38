"""What FSDP2 sends in a step: the bytes, the seconds under way, and the seconds for which the computation waited.

FSDP2 calls our objects for its two exchanges. `Gather` all-gathers the shards of a layer's parameters.
`ReduceInRankOrder` sums the workers' gradients and leaves each worker its shard.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from lockstep import faults
from lockstep.parallel.exchange import stamped_seconds
from lockstep.parallel.strategy import Clock, Stamp

MAX_IN_FLIGHT = 2
"""Layers whose gradients may travel at once on CPU; each takes its memory twice."""


class Traffic:
    """The account of one step."""

    def __init__(self, clock: Clock, silent: bool) -> None:
        self.clock = clock
        self.silent = silent  # an ablation: everything is done but the sending
        self.phase = "forward"  # waits are subtracted from this phase
        self._reset()

    def _reset(self) -> None:
        self.sent = 0
        self._spans: list[list[Stamp]] = []  # [departed, arrived]
        self._waits: list[tuple[str, Stamp, Stamp]] = []  # phase, begin, end

    def depart(self, work: dist.Work | None, sent: int) -> "InFlight":
        assert work is not None
        self.sent += sent
        span = [self.clock.stamp()]
        self._spans.append(span)
        arrival = work.get_future().then(lambda _: span.append(self.clock.stamp()))
        return InFlight(work, arrival, self)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        begin = self.clock.stamp()
        yield
        self.add_wait(begin)

    def add_wait(self, begin: Stamp) -> None:
        self._waits.append((self.phase, begin, self.clock.stamp()))

    def settle(self) -> tuple[int, float]:
        """Ends a step, after the device caught up: moves waits to the merge phase; returns the bytes sent and the seconds
        of exchange that the computation hid."""
        exposed = 0.0
        for phase, begin, end in self._waits:
            seconds = self.clock.between(begin, end)
            self.clock.move(phase, "merge", seconds)
            exposed += seconds
        sent, overlapped = self.sent, max(0.0, stamped_seconds(self.clock, self._spans) - exposed)
        self._reset()
        return sent, overlapped


class InFlight(dist.Work):
    """A message under way. Waiting for it is timed."""

    def __init__(self, work: dist.Work, arrival: torch.futures.Future[None], traffic: Traffic) -> None:
        super().__init__()
        self.work, self.arrival, self.traffic = work, arrival, traffic

    def wait(self, timeout: timedelta | None = None) -> bool:
        with self.traffic.waiting():
            self.work.wait()
            self.arrival.wait()
        return True


class Allocator:
    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class Gather(Allocator, AllGather):
    """All-gather: each worker sends its shard to all others."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        """Returns at once: FSDP2 waits for the result where it needs it."""
        if self.traffic.silent:
            output_tensor.view(group.size(), -1).copy_(input_tensor.clone())
            return None
        work = dist.all_gather_single(output_tensor, input_tensor, group=group, async_op=True)
        return self.traffic.depart(work, input_tensor.nbytes * (group.size() - 1))


class ReduceInRankOrder(Allocator, ReduceScatter):
    """Reduce-scatter: each worker gets its shard of the summed gradients.

    Gloo's own reduce-scatter sends as much as an all-reduce. Here each worker sends every other worker its shard and adds
    what it receives in rank order: half the bytes, the same bits every time, and backward continues during the exchange.
    FSDP2 assumes that the result is ready at once; it is ready when `finish` returns. Until then nobody reads it, because
    sums are neither divided nor cast nor accumulated.
    """

    def __init__(self, traffic: Traffic, dtype: torch.dtype) -> None:
        self.traffic = traffic
        self.dtype = dtype  # gradients travel in this format and are added in fp32
        self._pending: deque[tuple[InFlight, Tensor, Tensor]] = deque()  # message, received shards, their sum
        self._last: Stamp | None = None  # on CUDA, when the last gradients departed

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp | dist.ReduceOp.RedOpType,
        async_op: bool = False,
    ) -> dist.Work | None:
        assert op == dist.ReduceOp.SUM
        faults.at("merge")
        packed = input_tensor.to(self.dtype)  # the same tensor for fp32
        if self.traffic.silent:
            output_tensor.copy_(packed.view(group.size(), -1)[group.rank()])
        elif packed.is_cuda:
            self._in_stream(packed, output_tensor, group)
        else:
            self._in_background(packed, output_tensor, group)
        return None

    def _in_background(self, packed: Tensor, total: Tensor, group: dist.ProcessGroup) -> None:
        while len(self._pending) >= MAX_IN_FLIGHT:
            self._add_up()
        received = torch.empty_like(packed)
        work = dist.all_to_all_single(received, packed, group=group, async_op=True)
        self._pending.append((self._depart(work, packed, group), received.view(group.size(), -1), total))

    def _in_stream(self, packed: Tensor, total: Tensor, group: dist.ProcessGroup) -> None:
        """FSDP2 calls this in a separate stream, for which the others wait at the end of backward."""
        self._last = self.traffic.clock.stamp()
        if packed.dtype == total.dtype:
            work = dist.reduce_scatter_single(total, packed, op=dist.ReduceOp.SUM, group=group, async_op=True)
            self._depart(work, packed, group).work.wait()
            return
        received = torch.empty_like(packed)
        work = dist.all_to_all_single(received, packed, group=group, async_op=True)
        self._depart(work, packed, group).work.wait()
        _add(received.view(group.size(), -1), total)

    def _depart(self, work: dist.Work | None, packed: Tensor, group: dist.ProcessGroup) -> InFlight:
        return self.traffic.depart(work, packed.nbytes * (group.size() - 1) // group.size())

    def _add_up(self) -> None:
        message, shards, total = self._pending.popleft()
        message.wait()
        _add(shards, total)

    def finish(self) -> None:
        """Called after backward: completes all sums."""
        while self._pending:
            self._add_up()
        if self._last is not None:
            self.traffic.add_wait(self._last)
            self._last = None


def _add(shards: Tensor, total: Tensor) -> None:
    total.copy_(shards[0])
    for shard in shards[1:]:
        total += shard
