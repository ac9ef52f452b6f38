"""What FSDP2 sends in a step: how many bytes, how long they travelled, and how long the computation stood still for them.

FSDP2 leaves the two exchanges to objects of ours. `Gather` brings the parts of a layer's parameters together, `Reduce`
adds up the workers' gradients and leaves each worker its part.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from lockstep import faults
from lockstep.parallel.spans import busy
from lockstep.parallel.strategy import Clock

UNDER_WAY = 2
"""Layers whose gradients may travel at once on CPU; one more has to wait, because each takes memory twice."""


class Traffic:
    """The books of one step."""

    def __init__(self, clock: Clock, silent: bool) -> None:
        self.clock = clock
        self.silent = silent  # a counterfactual: everything is done but the sending
        self.phase = "forward"  # in which waits are to be booked
        self._forget()

    def _forget(self) -> None:
        self.sent = 0
        self._spans: list[list[Any]] = []  # [departed, arrived] stamps
        self._waits: list[tuple[str, Any, Any]] = []  # phase, begin, end

    def depart(self, work: dist.Work | None, sent: int) -> "Travel":
        assert work is not None
        self.sent += sent
        span = [self.clock.stamp()]
        self._spans.append(span)
        arrival = work.get_future().then(lambda _: span.append(self.clock.stamp()))
        return Travel(work, arrival, self)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        begin = self.clock.stamp()
        yield
        self.waited(begin)

    def waited(self, begin: Any) -> None:
        self._waits.append((self.phase, begin, self.clock.stamp()))

    def settle(self) -> tuple[int, float]:
        """Closes the books of a step, after the device caught up: books waits as merge time, and returns bytes sent and
        the seconds in which something travelled while the computation went on."""
        exposed = 0.0
        for phase, begin, end in self._waits:
            seconds = self.clock.between(begin, end)
            self.clock.move(phase, "merge", seconds)
            exposed += seconds
        sent, overlapped = self.sent, max(0.0, busy(self.clock, self._spans) - exposed)
        self._forget()
        return sent, overlapped


class Travel(dist.Work):
    """A message under way; who waits for it is on the clock."""

    def __init__(self, work: dist.Work, arrival: torch.futures.Future[None], traffic: Traffic) -> None:
        super().__init__()
        self.work, self.arrival, self.traffic = work, arrival, traffic

    def wait(self, timeout: Any = None) -> bool:
        with self.traffic.waiting():
            self.work.wait()
            self.arrival.wait()
        return True


class Allocator:
    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class Gather(Allocator, AllGather):
    """All parts of some parameters to every worker: each sends its own to all others."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        """Always returns at once: FSDP2 waits for the result where it needs it."""
        if self.traffic.silent:
            output_tensor.view(group.size(), -1).copy_(input_tensor.clone())
            return None
        work = dist.all_gather_single(output_tensor, input_tensor, group=group, async_op=True)
        return self.traffic.depart(work, input_tensor.nbytes * (group.size() - 1))


class Reduce(Allocator, ReduceScatter):
    """The sum of all workers' gradients, each worker its part.

    Gloo's own reduce-scatter sends as much as an all-reduce. Here each worker sends every other its part and adds up what
    it gets, in the order of ranks: half the bytes, the same bits every time, and backward goes on meanwhile. FSDP2 takes
    the result for ready at once. It is when `finish` returns, and until then nobody reads it: sums are neither divided
    nor cast, and no sum from before is there to be added to.
    """

    def __init__(self, traffic: Traffic, dtype: torch.dtype) -> None:
        self.traffic = traffic
        self.dtype = dtype  # in which gradients travel; they are added up in fp32
        self._pending: deque[tuple[Travel, Tensor, Tensor]] = deque()  # travel, received parts, their sum
        self._last: Any = None  # on CUDA, when the last gradients departed

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
        while len(self._pending) >= UNDER_WAY:
            self._add_up()
        received = torch.empty_like(packed)
        work = dist.all_to_all_single(received, packed, group=group, async_op=True)
        self._pending.append((self._depart(work, packed, group), received.view(group.size(), -1), total))

    def _in_stream(self, packed: Tensor, total: Tensor, group: dist.ProcessGroup) -> None:
        """FSDP2 calls this in a stream of its own, and lets the others wait for it at the end of backward."""
        self._last = self.traffic.clock.stamp()
        if packed.dtype == total.dtype:
            work = dist.reduce_scatter_single(total, packed, op=dist.ReduceOp.SUM, group=group, async_op=True)
            self._depart(work, packed, group).work.wait()
            return
        received = torch.empty_like(packed)
        work = dist.all_to_all_single(received, packed, group=group, async_op=True)
        self._depart(work, packed, group).work.wait()
        _add(received.view(group.size(), -1), total)

    def _depart(self, work: dist.Work | None, packed: Tensor, group: dist.ProcessGroup) -> Travel:
        return self.traffic.depart(work, packed.nbytes * (group.size() - 1) // group.size())

    def _add_up(self) -> None:
        travel, parts, total = self._pending.popleft()
        travel.wait()
        _add(parts, total)

    def finish(self) -> None:
        """After backward: all sums are there."""
        while self._pending:
            self._add_up()
        if self._last is not None:
            self.traffic.waited(self._last)
            self._last = None


def _add(parts: Tensor, total: Tensor) -> None:
    total.copy_(parts[0])
    for part in parts[1:]:
        total += part
