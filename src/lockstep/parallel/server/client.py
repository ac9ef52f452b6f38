"""A worker's connection to one parameter server: packets of its gradient go there, packets of parameters come back."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor

from lockstep.parallel.flat_parameters import FlatParameters
from lockstep.parallel.server.channel import Channel, InProcessEnd, Wait
from lockstep.parallel.server.embedding_rows import EmbeddingTable
from lockstep.parallel.server.shard import Packet
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
    gradient_tag,
    make_answer,
    make_head,
    values_tag,
)
from lockstep.parallel.strategy import Stamp

Interval = tuple[float, float]
WaitForNumber = Callable[[], float]
"""Returns the number in a server's answer when it has arrived."""


class ServerClient:
    """Sends packets in a thread while the backward pass computes."""

    def __init__(
        self, channel: Channel, flat: FlatParameters, packets: list[Packet], tables: dict[str, EmbeddingTable]
    ) -> None:
        assert flat.gradient is not None
        self.channel = channel
        self.is_local = isinstance(channel, InProcessEnd)  # nothing crosses a process boundary
        self.packets, self.tables = packets, tables
        self.table_packets = [i for i, packet in enumerate(packets) if packet.table]
        self.dense_packets = [i for i, packet in enumerate(packets) if not packet.table]
        self.row_bytes_sent = 0
        self._values = [flat.values[packet.span] for packet in packets]
        self._gradient = [flat.gradient[packet.span] for packet in packets]
        device = flat.values.device
        self._staged = device.type != "cpu" and not self.is_local
        # The stream of the backward pass holds its rest in its queue: copies in it would leave when backward has ended.
        stream = torch.cuda.Stream(device) if self._staged else None
        self._in_own_stream: Callable[[], AbstractContextManager[object]] = (
            nullcontext if stream is None else partial(torch.cuda.stream, stream)
        )
        self._outgoing = [_pin(one) for one in self._gradient] if self._staged else self._gradient
        self._incoming = [_pin(one) for one in self._values] if self._staged else self._values
        self._tensors_in = [0] * len(packets)  # number of tensors with values in each packet
        self._packets_of: dict[str, list[int]] = {}  # packets in which a tensor has values
        for name, (begin, end) in flat.spans.items():
            for i in self.dense_packets:
                span = packets[i].span
                if begin < span.stop and end > span.start:
                    self._tensors_in[i] += 1
                    self._packets_of.setdefault(name, []).append(i)
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="lockstep-push")
        self.begin_step()

    @property
    def size(self) -> int:
        """Number of values on the server."""
        return sum(packet.size for packet in self.packets)

    @property
    def dense_size(self) -> int:
        """Number of values that travel in every step, each way."""
        return sum(self.packets[i].size for i in self.dense_packets)

    def begin_step(self) -> None:
        self._missing = list(self._tensors_in)
        self._pushed: dict[int, Future[Interval]] = {}

    def gradient_ready(self, name: str, stamp: Callable[[], Stamp]) -> None:
        """The gradient of this tensor is complete: pushes packets that are complete now."""
        for packet in self._packets_of.get(name, ()):
            self._missing[packet] -= 1
            if self._missing[packet] == 0:
                self._push(packet, stamp())

    def push_rest(self, stamp: Callable[[], Stamp]) -> list[Interval]:
        """Pushes what is left (a tensor without a gradient holds its packets back), rows last, and waits. Returns when
        each packet was ready and when it had left."""
        for packet in (*reversed(self.dense_packets), *reversed(self.table_packets)):
            if packet not in self._pushed:
                self._push(packet, stamp())
        return [pushed.result() for pushed in self._pushed.values()]

    def _push(self, packet: int, ready: Stamp) -> None:
        if not self._pushed:
            self._sender.submit(self.channel.send, make_head(PUSH), HEAD)
        send = self._send_rows if self.packets[packet].table else self._send
        self._pushed[packet] = self._sender.submit(send, packet, ready)

    def _send(self, packet: int, ready: Stamp) -> Interval:
        if isinstance(ready, torch.cuda.Event):
            ready.synchronize()
        begin = time.perf_counter()
        if self._staged:
            with self._in_own_stream():
                self._outgoing[packet].copy_(self._gradient[packet])
        self.channel.send(self._outgoing[packet], gradient_tag(packet))
        return begin, time.perf_counter()

    def _send_rows(self, packet: int, ready: Stamp) -> Interval:
        if isinstance(ready, torch.cuda.Event):
            ready.synchronize()
        begin = time.perf_counter()
        used = self.tables[self.packets[packet].table].used
        rows = self._rows_within(packet, used.nonzero().flatten())
        self.channel.send(make_answer(len(rows)), gradient_tag(packet))
        if len(rows):
            table = self._gradient[packet].view(-1, self.packets[packet].width)  # [rows, width]
            with self._in_own_stream():
                values = table[rows.to(table.device)].cpu()
            self.channel.send(rows, gradient_tag(packet))
            self.channel.send(values, gradient_tag(packet))
            self._count_rows(rows, values)
        return begin, time.perf_counter()

    def _rows_within(self, packet: int, rows: Tensor) -> Tensor:
        """Returns those of a table's sorted rows that lie in this packet, counted from its first row."""
        table = self.packets[packet]
        low, high = (
            int(torch.searchsorted(rows, row)) for row in (table.first_row, table.first_row + table.size // table.width)
        )
        return (rows[low:high] - table.first_row).contiguous()

    def _count_rows(self, *sent: Tensor) -> None:
        if not self.is_local:
            self.row_bytes_sent += sum(tensor.nbytes for tensor in sent)

    def pull_rows(self, table: str, rows: Tensor) -> Wait:
        """Asks for some rows of a table, sorted; the returned call waits for those that this server has."""
        packet = next(i for i in self.table_packets if self.packets[i].table == table)
        own_rows = self._rows_within(packet, rows)
        if not len(own_rows):
            return lambda: None
        width = self.packets[packet].width
        received = torch.empty(len(own_rows), width)
        arrived = self.channel.expect(received, values_tag(packet))
        self.channel.send(make_head(ROWS, packet, len(own_rows)), HEAD)
        self.channel.send(own_rows, gradient_tag(packet))
        self._count_rows(own_rows)

        def wait() -> None:
            arrived()
            values = self._values[packet].view(-1, width)
            values[own_rows.to(values.device)] = received.to(values.device)

        return wait

    def request(self, head: Tensor, answered: bool = True) -> WaitForNumber:
        """Sends a request; the returned call waits for the number in the answer."""
        wait = self.expect_number() if answered else lambda: 0.0
        self.channel.send(head, HEAD)
        return wait

    def expect_number(self) -> WaitForNumber:
        """The returned call waits for a number from the server. In sync mode the server answers a push with the squared
        norm of the summed gradient."""
        number = make_answer()
        arrived = self.channel.expect(number, ANSWER)

        def wait() -> float:
            arrived()
            return float(number[0])

        return wait

    def apply(self, step: int, factor: float, rate: float, answered: bool) -> WaitForNumber:
        return self.request(make_head(APPLY, step, factor, rate), answered)

    def pull(self, ask: bool) -> Wait:
        """Receives parameters, on request or because an update is about to send them; the returned call waits."""
        arrivals = [self.channel.expect(self._incoming[packet], values_tag(packet)) for packet in self.dense_packets]
        if ask:
            self.channel.send(make_head(PULL), HEAD)

        def wait() -> None:
            for arrived in arrivals:
                arrived()
            for packet in self.dense_packets if self._staged else ():
                self._values[packet].copy_(self._incoming[packet], non_blocking=True)

        return wait

    def read(self, vectors: list[Tensor]) -> int:
        """Fills vectors (parameters and moments) with the server's values; returns its number of updates."""
        updates = self.request(make_head(READ))()
        for vector in vectors:
            received = torch.empty(self.size)
            self.channel.expect(received, VALUES)()
            for packet, values in zip(self.packets, received.split([p.size for p in self.packets]), strict=True):
                vector[packet.span].copy_(values)
        return int(updates)

    def write(self, vectors: list[Tensor], updates: int) -> None:
        done = self.request(make_head(WRITE, updates))
        for vector in vectors:
            self.channel.send(torch.cat([vector[packet.span] for packet in self.packets]).cpu(), VALUES)
        done()

    def leave(self) -> None:
        self.channel.send(make_head(LEAVE), HEAD)
        self._sender.shutdown()


def _pin(tensor: Tensor) -> Tensor:
    """Returns an empty host buffer of the same length in pinned memory."""
    return torch.empty(len(tensor), pin_memory=True)
