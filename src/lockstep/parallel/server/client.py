"""A worker's line to one holder of parameters: packets of its gradient go there, packets of parameters come back."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from lockstep.parallel.flat_parameters import FlatParameters
from lockstep.parallel.server.channel import Channel, InProcessEnd
from lockstep.parallel.server.embedding_rows import EmbeddingTable
from lockstep.parallel.server.packets import Packet
from lockstep.parallel.server.shard_server import (
    ANSWER,
    APPLY,
    HEAD,
    LEAVE,
    PULL,
    PUSH,
    READ,
    ROWS,
    VALUES,
    WRITE,
    answer,
    gradient_tag,
    head,
    values_tag,
)


class ServerClient:
    """Packets leave while the backward pass goes on, in a thread of their own."""

    def __init__(
        self, channel: Channel, flat: FlatParameters, packets: list[Packet], tables: dict[str, EmbeddingTable]
    ) -> None:
        assert flat.gradient is not None
        self.channel = channel
        self.own = isinstance(channel, InProcessEnd)  # nothing travels
        self.packets, self.tables = packets, tables
        self.rows = [i for i, packet in enumerate(packets) if packet.table]
        self.others = [i for i, packet in enumerate(packets) if not packet.table]
        self.rows_sent = 0  # bytes
        self._values = [flat.values[packet.span] for packet in packets]
        self._gradient = [flat.gradient[packet.span] for packet in packets]
        self._staged = flat.values.is_cuda and not self.own
        self._there = [_pinned(one) for one in self._gradient] if self._staged else self._gradient
        self._back = [_pinned(one) for one in self._values] if self._staged else self._values
        self._needs = [0] * len(packets)  # tensors that have values in each packet
        self._of: dict[str, list[int]] = {}  # packets in which a tensor has values
        for name, (a, b) in flat.spans.items():
            for i in self.others:
                span = packets[i].span
                if a < span.stop and b > span.start:
                    self._needs[i] += 1
                    self._of.setdefault(name, []).append(i)
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="lockstep-push")
        self.begin()

    @property
    def size(self) -> int:
        """Values that the holder has."""
        return sum(packet.size for packet in self.packets)

    @property
    def sent_in_full(self) -> int:
        """Values that travel in every step, each way."""
        return sum(self.packets[i].size for i in self.others)

    def begin(self) -> None:
        """A new gradient is to come."""
        self._missing = list(self._needs)
        self._sent: dict[int, Future[tuple[float, float]]] = {}

    def ready(self, name: str, stamp: Callable[[], Any]) -> None:
        """The gradient of this tensor is complete."""
        for packet in self._of.get(name, ()):
            self._missing[packet] -= 1
            if self._missing[packet] == 0:
                self._push(packet, stamp())

    def push_rest(self, stamp: Callable[[], Any]) -> list[tuple[float, float]]:
        """Sends what is left (a tensor without a gradient keeps its packets back), at the end rows, which the holder takes
        last, and waits; returns when each packet was ready and when it had left."""
        for packet in (*reversed(self.others), *reversed(self.rows)):
            if packet not in self._sent:
                self._push(packet, stamp())
        return [sent.result() for sent in self._sent.values()]

    def _push(self, packet: int, ready: Any) -> None:
        if not self._sent:
            self._sender.submit(self.channel.send, head(PUSH), HEAD)
        send = self._send_rows if self.packets[packet].table else self._send
        self._sent[packet] = self._sender.submit(send, packet, ready)

    def _send(self, packet: int, ready: Any) -> tuple[float, float]:
        if self._gradient[packet].is_cuda:
            ready.synchronize()
        begin = time.perf_counter()
        if self._staged:
            self._there[packet].copy_(self._gradient[packet])
        self.channel.send(self._there[packet], gradient_tag(packet))
        return begin, time.perf_counter()

    def _send_rows(self, packet: int, ready: Any) -> tuple[float, float]:
        if self._gradient[packet].is_cuda:
            ready.synchronize()
        begin = time.perf_counter()
        used = self.tables[self.packets[packet].table].used
        chosen = self._within(packet, used.nonzero().flatten())
        self.channel.send(answer(len(chosen)), gradient_tag(packet))
        if len(chosen):
            table = self._gradient[packet].view(-1, self.packets[packet].width)
            values = table[chosen.to(table.device)].cpu()
            self.channel.send(chosen, gradient_tag(packet))
            self.channel.send(values, gradient_tag(packet))
            self._count_rows(chosen, values)
        return begin, time.perf_counter()

    def _within(self, packet: int, rows: Tensor) -> Tensor:
        """Those of a table's sorted rows that lie in this packet, counted from its first."""
        stretch = self.packets[packet]
        low, high = (
            int(torch.searchsorted(rows, row)) for row in (stretch.first, stretch.first + stretch.size // stretch.width)
        )
        return (rows[low:high] - stretch.first).contiguous()

    def _count_rows(self, *sent: Tensor) -> None:
        if not self.own:
            self.rows_sent += sum(tensor.nbytes for tensor in sent)

    def pull_rows(self, table: str, rows: Tensor) -> Callable[[], None]:
        """Asks for some rows of a table, sorted; the result waits for those that this holder has."""
        packet = next(i for i in self.rows if self.packets[i].table == table)
        chosen = self._within(packet, rows)
        if not len(chosen):
            return lambda: None
        width = self.packets[packet].width
        received = torch.empty(len(chosen), width)
        arrived = self.channel.expect(received, values_tag(packet))
        self.channel.send(head(ROWS, packet, len(chosen)), HEAD)
        self.channel.send(chosen, gradient_tag(packet))
        self._count_rows(chosen)

        def wait() -> None:
            arrived()
            values = self._values[packet].view(-1, width)
            values[chosen.to(values.device)] = received.to(values.device)

        return wait

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
        arrivals = [self.channel.expect(self._back[packet], values_tag(packet)) for packet in self.others]
        if ask:
            self.channel.send(head(PULL), HEAD)

        def wait() -> None:
            for arrived in arrivals:
                arrived()
            for packet in self.others if self._staged else ():
                self._values[packet].copy_(self._back[packet], non_blocking=True)

        return wait

    def read(self, vectors: list[Tensor]) -> int:
        """Fills vectors (the parameters and the optimizer's averages) with the holder's; returns its updates so far."""
        updates = self.ask(head(READ))()
        for vector in vectors:
            received = torch.empty(self.size)
            self.channel.expect(received, VALUES)()
            for packet, values in zip(self.packets, received.split([p.size for p in self.packets]), strict=True):
                vector[packet.span].copy_(values)
        return int(updates)

    def write(self, vectors: list[Tensor], updates: int) -> None:
        done = self.ask(head(WRITE, updates))
        for vector in vectors:
            self.channel.send(torch.cat([vector[packet.span] for packet in self.packets]).cpu(), VALUES)
        done()

    def leave(self) -> None:
        self.channel.send(head(LEAVE), HEAD)
        self._sender.shutdown()


def _pinned(tensor: Tensor) -> Tensor:
    return torch.empty(len(tensor), pin_memory=True)
