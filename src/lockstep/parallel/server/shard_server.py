"""Serves a shard of the parameters to the workers: one thread per worker, which notices at once when its worker dies.

Every request is a HEAD (what, and a few numbers). A step is PUSH, packets of gradients, APPLY. In `SyncUpdates` the server
sends the squared norm of its shard before APPLY and the new parameters after it. In `AsyncUpdates` it answers how stale the
gradient was, and parameters are PULLed when needed. Of embedding tables only ROWS travel: with a gradient, or asked for.
"""

import threading
from collections.abc import Callable

import torch
from torch import Tensor

from lockstep import faults
from lockstep.parallel.server.channel import Channel, Wait
from lockstep.parallel.server.shard import ParameterShard

PUSH, APPLY, PULL, ROWS, READ, WRITE, LEAVE = range(7)
HEAD, ANSWER, VALUES, PACKETS = range(4)  # tags; those of gradient and parameter packets come after
HEAD_SIZE, ANSWER_SIZE = 4, 2


def gradient_tag(packet: int) -> int:
    return PACKETS + 2 * packet


def values_tag(packet: int) -> int:
    return PACKETS + 2 * packet + 1


def make_head(request: int, *numbers: float) -> Tensor:
    return torch.tensor([request, *numbers, *[0.0] * (HEAD_SIZE - 1 - len(numbers))], dtype=torch.float64)


def make_answer(*numbers: float) -> Tensor:
    return torch.tensor([*numbers, *[0.0] * (ANSWER_SIZE - len(numbers))], dtype=torch.float64)


class SyncUpdates:
    """The gradients of all workers, added in the order of ranks, make one update."""

    def __init__(self, shard: ParameterShard, workers: int) -> None:
        self.shard = shard
        self._barrier = threading.Barrier(workers)
        self._received: list[list[Tensor]] = [[] for _ in range(workers)]
        self._sums: dict[int, Tensor] = {}
        self._squared_norm = 0.0

    def push(self, worker: int, channel: Channel, receive: Callable[[int], Tensor]) -> None:
        """Receives a worker's packets from the last to the first, as the backward pass makes them, and adds them up."""
        for packet in reversed(range(len(self.shard.packets))):
            self._received[worker].append(receive(packet))
            if self._barrier.wait() == 0:
                self._add(packet)
            self._barrier.wait()
        channel.send(make_answer(self._squared_norm), ANSWER)

    def _add(self, packet: int) -> None:
        total, *others = (received.pop() for received in self._received)
        for gradient in others:
            total += gradient.to(total.device)
        self._sums[packet] = total
        if packet == len(self.shard.packets) - 1:
            self._squared_norm = 0.0
        self._squared_norm += float(torch.linalg.vector_norm(total)) ** 2

    def apply(self, worker: int, channel: Channel, finite: bool, factor: float, rate: float) -> None:
        for packet, values in enumerate(self.shard.packets):
            if self._barrier.wait() == 0 and finite:
                self.shard.update(packet, self._sums[packet].mul_(factor), rate)
                self.shard.updates += packet == 0
            self._barrier.wait()
            if packet >= len(self.shard.widths):
                channel.send(values, values_tag(packet))

    def read_rows(self, packet: int, rows: Tensor) -> Tensor:
        """Needs no lock: a worker that asks has not pushed yet, so no update runs."""
        return self.shard.read_rows(packet, rows)

    def leave(self, worker: int, died: bool) -> None:
        if died:
            self._barrier.abort()


class AsyncUpdates:
    """Every worker's gradient is an update by itself. With `bound` no gradient is applied more than `bound` updates after
    its parameters were read: a worker whose update would make another one too late waits."""

    def __init__(self, shard: ParameterShard, workers: int, bound: int | None) -> None:
        self.shard, self.bound = shard, bound
        self._turn = threading.Condition()
        self._read_at: dict[int, int] = {}  # number of updates when each computing worker read its parameters
        self._received: list[dict[int, Tensor]] = [{} for _ in range(workers)]

    def join(self, worker: int) -> None:
        """Notes that the worker has pulled parameters and computes."""
        with self._turn:
            self._read_at[worker] = self.shard.updates

    def push(self, worker: int, channel: Channel, receive: Callable[[int], Tensor]) -> None:
        for packet in reversed(range(len(self.shard.packets))):
            self._received[worker][packet] = receive(packet)

    def apply(self, worker: int, channel: Channel, finite: bool, factor: float, rate: float) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._may_update(worker))
            staleness = self.shard.updates - self._read_at.pop(worker)
            if finite:
                for packet, gradient in self._received[worker].items():
                    self.shard.update(packet, gradient.mul_(factor), rate)
                self.shard.updates += 1
            self._turn.notify_all()
        channel.send(make_answer(staleness), ANSWER)

    def _may_update(self, worker: int) -> bool:
        """Whether all other computing workers, the oldest first, can still apply their gradients within the bound."""
        others = sorted(read_at for other, read_at in self._read_at.items() if other != worker)
        updates = self.shard.updates + 1
        return self.bound is None or all(updates + i - read_at <= self.bound for i, read_at in enumerate(others))

    def leave(self, worker: int, died: bool) -> None:
        with self._turn:
            self._read_at.pop(worker, None)
            self._turn.notify_all()

    def copy_dense(self, values: Tensor) -> None:
        """Copies parameters between two updates, never in the middle of one."""
        with self._turn:
            values.copy_(self.shard.dense_values)

    def read_rows(self, packet: int, rows: Tensor) -> Tensor:
        with self._turn:
            return self.shard.read_rows(packet, rows)


class ShardServer:
    """Answers the requests of all workers until they have left. `local_worker` is the worker of this same process, if
    there is one; `on_death` is called with a worker that died and the error that showed it."""

    def __init__(
        self,
        shard: ParameterShard,
        rule: SyncUpdates | AsyncUpdates,
        channels: dict[int, Channel],
        local_worker: int | None,
        on_death: Callable[[int, BaseException], None],
    ) -> None:
        self.shard, self.rule, self.channels = shard, rule, channels
        self.local_worker, self.on_death = local_worker, on_death
        self.row_bytes_sent = dict.fromkeys(channels, 0)  # to each worker
        self.threads = [
            threading.Thread(target=self._serve, args=(worker,), name=f"lockstep-server-{worker}", daemon=True)
            for worker in channels
        ]
        for thread in self.threads:
            thread.start()

    def wait(self) -> None:
        """Returns when all workers have left."""
        for thread in self.threads:
            thread.join()

    def _serve(self, worker: int) -> None:
        try:
            self._answer_requests(worker, self.channels[worker])
        except (RuntimeError, threading.BrokenBarrierError) as error:
            self.rule.leave(worker, died=True)
            self.on_death(worker, error)

    def _answer_requests(self, worker: int, channel: Channel) -> None:
        shard, tables = self.shard, len(self.shard.widths)
        device = shard.update_device if worker == self.local_worker else torch.device("cpu")
        sizes = [packet.numel() for packet in shard.packets]
        buffers = list(torch.empty(sum(sizes), device=device).split(sizes))
        outgoing = torch.empty(len(shard.dense_values))  # parameters on their way to the worker
        arrivals = self._expect(channel, buffers)

        def receive(packet: int) -> Tensor:
            if packet < tables:
                _receive_rows(channel, packet, buffers[packet].zero_().view(-1, shard.widths[packet]))
            else:
                arrivals[packet - tables]()
            return buffers[packet]

        request = make_head(LEAVE)
        while True:
            channel.expect(request, HEAD)()
            what, *numbers = request.tolist()
            if what == PUSH:
                self.rule.push(worker, channel, receive)
            elif what == APPLY:
                step, factor, rate = numbers
                faults.at("serve", int(step))
                self.rule.apply(worker, channel, factor == factor, factor, rate)  # NaN: not finite
                arrivals = self._expect(channel, buffers)
            elif what == PULL:
                assert isinstance(self.rule, AsyncUpdates)
                self.rule.join(worker)
                self.rule.copy_dense(outgoing)
                for packet, values in enumerate(outgoing.split(sizes[tables:]), tables):
                    channel.send(values, values_tag(packet))
            elif what == ROWS:
                self._send_rows(worker, channel, int(numbers[0]), int(numbers[1]))
            elif what == READ:
                self._send_all(channel)
            elif what == WRITE:
                self._receive_all(channel, int(numbers[0]))
            else:
                self.rule.leave(worker, died=False)
                return

    def _expect(self, channel: Channel, buffers: list[Tensor]) -> list[Wait]:
        """Posts receives for all packets but tables, whose number of rows is sent first."""
        tables = len(self.shard.widths)
        return [channel.expect(buffer, gradient_tag(i)) for i, buffer in enumerate(buffers[tables:], tables)]

    def _send_rows(self, worker: int, channel: Channel, packet: int, count: int) -> None:
        rows = _receive(channel, torch.empty(count, dtype=torch.int64), packet)
        values = self.rule.read_rows(packet, rows)
        channel.send(values, values_tag(packet))
        self.row_bytes_sent[worker] += values.nbytes

    def _send_all(self, channel: Channel) -> None:
        shard = self.shard
        channel.send(make_answer(shard.updates), ANSWER)
        for values in (shard.values, *(shard.read_moment(name) for name in shard.moments)):
            channel.send(values.cpu(), VALUES)

    def _receive_all(self, channel: Channel, updates: int) -> None:
        shard = self.shard
        vectors = [torch.empty(len(shard.values)) for _ in range(1 + len(shard.moments))]
        for vector in vectors:
            channel.expect(vector, VALUES)()
        shard.fill(vectors[0], dict(zip(shard.moments, vectors[1:], strict=True)), updates)
        channel.send(make_answer(), ANSWER)


def _receive(channel: Channel, tensor: Tensor, packet: int) -> Tensor:
    channel.expect(tensor, gradient_tag(packet))()
    return tensor


def _receive_rows(channel: Channel, packet: int, table: Tensor) -> None:
    """Receives the rows of a gradient that are not zero: their number, their indices and their values."""
    count = int(_receive(channel, make_answer(), packet)[0])
    if count:
        rows = _receive(channel, torch.empty(count, dtype=torch.int64), packet)
        values = _receive(channel, torch.empty(count, table.shape[1]), packet)
        table[rows.to(table.device)] = values.to(table.device)
