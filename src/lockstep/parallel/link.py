"""A worker's line to one holder of parameters: packets of its gradient go there, packets of parameters come back."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from lockstep.parallel.channel import Channel, DeskEnd
from lockstep.parallel.flat import Flat
from lockstep.parallel.holder import (
    ANSWER,
    APPLY,
    HEAD,
    LEAVE,
    PULL,
    PUSH,
    READ,
    VALUES,
    WRITE,
    answer,
    gradient_tag,
    head,
    values_tag,
)


class Link:
    """Packets leave while the backward pass goes on, in a thread of their own."""

    def __init__(self, channel: Channel, flat: Flat, begin: int, sizes: list[int]) -> None:
        assert flat.gradient is not None
        self.channel = channel
        self.own = isinstance(channel, DeskEnd)  # nothing travels
        self.span = slice(begin, begin + sum(sizes))
        self.values, self.gradient = flat.values[self.span], flat.gradient[self.span]
        staged = flat.values.is_cuda and not self.own
        self._there = torch.empty(len(self.gradient), pin_memory=True) if staged else self.gradient
        self._back = torch.empty(len(self.values), pin_memory=True) if staged else self.values
        self._sizes = sizes
        self._needs = [0] * len(sizes)  # tensors that have values in each packet
        self._packets: dict[str, list[int]] = {}  # those in which a tensor has values
        for name, (a, b) in flat.spans.items():
            end = begin
            for packet, size in enumerate(sizes):
                start, end = end, end + size
                if a < end and b > start:
                    self._needs[packet] += 1
                    self._packets.setdefault(name, []).append(packet)
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="lockstep-push")
        self.begin()

    def begin(self) -> None:
        """A new gradient is to come."""
        self._missing = list(self._needs)
        self._sent: dict[int, Future[tuple[float, float]]] = {}

    def ready(self, name: str, stamp: Callable[[], Any]) -> None:
        """The gradient of this tensor is complete."""
        for packet in self._packets.get(name, ()):
            self._missing[packet] -= 1
            if self._missing[packet] == 0:
                self._push(packet, stamp())

    def push_rest(self, stamp: Callable[[], Any]) -> list[tuple[float, float]]:
        """Sends what is left (a tensor without a gradient keeps its packets back) and waits; returns when each packet
        was ready and when it had left."""
        for packet in reversed(range(len(self._sizes))):
            if packet not in self._sent:
                self._push(packet, stamp())
        return [sent.result() for sent in self._sent.values()]

    def _push(self, packet: int, ready: Any) -> None:
        if not self._sent:
            self._sender.submit(self.channel.send, head(PUSH), HEAD)
        self._sent[packet] = self._sender.submit(self._send, packet, ready)

    def _send(self, packet: int, ready: Any) -> tuple[float, float]:
        there = self._there.split(self._sizes)[packet]
        if self.gradient.is_cuda:
            ready.synchronize()
        begin = time.perf_counter()
        if self._there is not self.gradient:
            there.copy_(self.gradient.split(self._sizes)[packet])
        self.channel.send(there, gradient_tag(packet))
        return begin, time.perf_counter()

    def ask(self, request: Tensor, answered: bool = True) -> Callable[[], float]:
        """Sends a request; the result waits for the answer's number."""
        number = answer()
        arrived = self.channel.expect(number, ANSWER) if answered else None
        self.channel.send(request, HEAD)

        def wait() -> float:
            if arrived is not None:
                arrived()
            return float(number[0])

        return wait

    def square(self) -> Callable[[], float]:
        """The answer to a push where all gradients are summed."""
        number = answer()
        arrived = self.channel.expect(number, ANSWER)

        def wait() -> float:
            arrived()
            return float(number[0])

        return wait

    def apply(self, step: int, factor: float, rate: float, answered: bool) -> Callable[[], float]:
        return self.ask(head(APPLY, step, factor, rate), answered)

    def pull(self, ask: bool) -> Callable[[], None]:
        """Takes parameters, on request or because an update is about to bring them; the result waits for them."""
        packets = self._back.split(self._sizes)
        arrivals = [self.channel.expect(values, values_tag(packet)) for packet, values in enumerate(packets)]
        if ask:
            self.channel.send(head(PULL), HEAD)

        def wait() -> None:
            for arrived in arrivals:
                arrived()
            if self._back is not self.values:
                self.values.copy_(self._back, non_blocking=True)

        return wait

    def read(self, vectors: list[Tensor]) -> int:
        """Fills vectors (the parameters and the optimizer's averages) with the holder's; returns its updates so far."""
        updates = self.ask(head(READ))()
        for vector in vectors:
            received = torch.empty(len(self.values))
            self.channel.expect(received, VALUES)()
            vector[self.span].copy_(received)
        return int(updates)

    def write(self, vectors: list[Tensor], updates: int) -> None:
        done = self.ask(head(WRITE, updates))
        for vector in vectors:
            self.channel.send(vector[self.span].cpu(), VALUES)
        done()

    def leave(self) -> None:
        self.channel.send(head(LEAVE), HEAD)
        self._sender.shutdown()
