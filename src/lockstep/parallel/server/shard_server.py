"""Serves a part of the parameters to the workers: one thread for each, which notices at once when its worker dies.

Every request is a HEAD (what, and a few numbers). A step is PUSH, packets of gradients, APPLY. In `SyncUpdates` the server
sends the squared norm of its shard before APPLY and the new parameters after it. In `AsyncUpdates` it answers how stale the
gradient was, and parameters are PULLed when needed. Of embedding tables only ROWS travel: with a gradient, or asked for.
"""

import threading
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from lockstep import faults
from lockstep.parallel.server.channel import Channel
from lockstep.parallel.server.shard import ParameterShard

PUSH, APPLY, PULL, ROWS, READ, WRITE, LEAVE = range(7)
HEAD, ANSWER, VALUES, PACKETS = range(4)  # tags; packets of gradients and of parameters come after
HEAD_SIZE, ANSWER_SIZE = 4, 2


def gradient_tag(packet: int) -> int:
    return PACKETS + 2 * packet


def values_tag(packet: int) -> int:
    return PACKETS + 2 * packet + 1


def head(request: int, *numbers: float) -> Tensor:
    return torch.tensor([request, *numbers, *[0.0] * (HEAD_SIZE - 1 - len(numbers))], dtype=torch.float64)


def answer(*numbers: float) -> Tensor:
    return torch.tensor([*numbers, *[0.0] * (ANSWER_SIZE - len(numbers))], dtype=torch.float64)


class UpdateRule(Protocol):
    """What becomes of the gradients that workers push."""

    def join(self, worker: int) -> None:
        """The worker has taken parameters and computes."""
        ...

    def push(self, worker: int, channel: Channel, receive: Callable[[int], Tensor]) -> None:
        """Takes a worker's packets, from the last one to the first, as the backward pass makes them."""
        ...

    def apply(self, worker: int, channel: Channel, finite: bool, factor: float, rate: float) -> None: ...

    def rows(self, packet: int, chosen: Tensor) -> Tensor:
        """Some rows of a table."""
        ...

    def leave(self, worker: int, died: bool) -> None: ...


class SyncUpdates:
    """All workers' gradients, added in the order of the workers, make one update."""

    def __init__(self, part: ParameterShard, workers: int) -> None:
        self.part, self.workers = part, workers
        self._meet = threading.Barrier(workers)
        self._received: list[list[Tensor]] = [[] for _ in range(workers)]
        self._sums: dict[int, Tensor] = {}
        self._square = 0.0

    def join(self, worker: int) -> None:
        pass

    def push(self, worker: int, channel: Channel, receive: Callable[[int], Tensor]) -> None:
        for packet in reversed(range(len(self.part.packets))):
            self._received[worker].append(receive(packet))
            if self._meet.wait() == 0:
                self._add(packet)
            self._meet.wait()
        channel.send(answer(self._square), ANSWER)

    def _add(self, packet: int) -> None:
        total, *others = (received.pop() for received in self._received)
        for gradient in others:
            total += gradient.to(total.device)
        self._sums[packet] = total
        if packet == len(self.part.packets) - 1:
            self._square = 0.0
        self._square += float(torch.linalg.vector_norm(total)) ** 2

    def apply(self, worker: int, channel: Channel, finite: bool, factor: float, rate: float) -> None:
        for packet, values in enumerate(self.part.packets):
            if self._meet.wait() == 0 and finite:
                self.part.update(packet, self._sums[packet].mul_(factor), rate)
                self.part.updates += packet == 0
            self._meet.wait()
            if packet >= len(self.part.widths):
                channel.send(values, values_tag(packet))

    def rows(self, packet: int, chosen: Tensor) -> Tensor:
        """Nobody updates meanwhile: whoever asks has not pushed yet."""
        return self.part.rows(packet, chosen)

    def leave(self, worker: int, died: bool) -> None:
        if died:
            self._meet.abort()


class AsyncUpdates:
    """Every worker's gradient is an update of its own. With `bound` no gradient is applied more than so many updates
    after its parameters were taken: workers that would make others that late wait for them."""

    def __init__(self, part: ParameterShard, workers: int, bound: int | None) -> None:
        self.part, self.bound = part, bound
        self._turn = threading.Condition()
        self._taken: dict[int, int] = {}  # updates when each computing worker took its parameters
        self._received: list[dict[int, Tensor]] = [{} for _ in range(workers)]

    def join(self, worker: int) -> None:
        with self._turn:
            self._taken[worker] = self.part.updates

    def push(self, worker: int, channel: Channel, receive: Callable[[int], Tensor]) -> None:
        for packet in reversed(range(len(self.part.packets))):
            self._received[worker][packet] = receive(packet)

    def apply(self, worker: int, channel: Channel, finite: bool, factor: float, rate: float) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._may(worker))
            staleness = self.part.updates - self._taken.pop(worker)
            if finite:
                for packet, gradient in self._received[worker].items():
                    self.part.update(packet, gradient.mul_(factor), rate)
                self.part.updates += 1
            self._turn.notify_all()
        channel.send(answer(staleness), ANSWER)

    def _may(self, worker: int) -> bool:
        """Can all that are computing still come in time after this update, the oldest first?"""
        others = sorted(taken for other, taken in self._taken.items() if other != worker)
        updates = self.part.updates + 1
        return self.bound is None or all(updates + i - taken <= self.bound for i, taken in enumerate(others))

    def leave(self, worker: int, died: bool) -> None:
        with self._turn:
            self._taken.pop(worker, None)
            self._turn.notify_all()

    def copy(self, values: Tensor) -> None:
        """Parameters of one moment, not half of one update and half of the next."""
        with self._turn:
            values.copy_(self.part.others)

    def rows(self, packet: int, chosen: Tensor) -> Tensor:
        with self._turn:
            return self.part.rows(packet, chosen)


class ShardServer:
    def __init__(
        self,
        part: ParameterShard,
        rule: SyncUpdates | AsyncUpdates,
        channels: dict[int, Channel],
        here: int | None,
        lost: Callable[[int, BaseException], None],
    ) -> None:
        """`here`: the worker of this very process, if there is one; `lost` is told of workers that died."""
        self.part, self.rule, self.channels, self.here, self.lost = part, rule, channels, here, lost
        self.rows_sent = dict.fromkeys(channels, 0)  # bytes, to each worker
        self.threads = [
            threading.Thread(target=self._serve, args=(worker,), name=f"lockstep-holder-{worker}", daemon=True)
            for worker in channels
        ]
        for thread in self.threads:
            thread.start()

    def wait(self) -> None:
        """Until all workers have left."""
        for thread in self.threads:
            thread.join()

    def _serve(self, worker: int) -> None:
        try:
            self._answer(worker, self.channels[worker])
        except (RuntimeError, threading.BrokenBarrierError) as error:
            self.rule.leave(worker, died=True)
            self.lost(worker, error)

    def _answer(self, worker: int, channel: Channel) -> None:
        place = self.part.update_place if worker == self.here else torch.device("cpu")
        sizes = [packet.numel() for packet in self.part.packets]
        buffers = list(torch.empty(sum(sizes), device=place).split(sizes))
        taken = torch.empty(len(self.part.others))  # parameters on their way to the worker
        tables = len(self.part.widths)
        arrivals = self._expect(channel, buffers)

        def receive(packet: int) -> Tensor:
            if packet < tables:
                _receive_rows(channel, packet, buffers[packet].zero_().view(-1, self.part.widths[packet]))
            else:
                arrivals[packet - tables]()
            return buffers[packet]

        request = head(LEAVE)
        while True:
            channel.expect(request, HEAD)()
            what, *numbers = request.tolist()
            if what == PUSH:
                self.rule.push(worker, channel, receive)
            elif what == APPLY:
                step, factor, rate = numbers
                faults.at("serve", int(step))
                self.rule.apply(worker, channel, factor == factor, factor, rate)
                arrivals = self._expect(channel, buffers)
            elif what == PULL:
                assert isinstance(self.rule, AsyncUpdates)
                self.rule.join(worker)
                self.rule.copy(taken)
                for packet, values in enumerate(taken.split(sizes[tables:]), tables):
                    channel.send(values, values_tag(packet))
            elif what == ROWS:
                packet, count = int(numbers[0]), int(numbers[1])
                values = self.rule.rows(packet, _received(channel, torch.empty(count, dtype=torch.int64), packet))
                channel.send(values, values_tag(packet))
                self.rows_sent[worker] += values.nbytes
            elif what == READ:
                channel.send(answer(self.part.updates), ANSWER)
                for values in (self.part.values, *(self.part.moment(name) for name in self.part.moments)):
                    channel.send(values.cpu(), VALUES)
            elif what == WRITE:
                received = [torch.empty(sum(sizes)) for _ in range(1 + len(self.part.moments))]
                for values in received:
                    channel.expect(values, VALUES)()
                self.part.fill(received[0], dict(zip(self.part.moments, received[1:], strict=True)), int(numbers[0]))
                channel.send(answer(), ANSWER)
            else:
                self.rule.leave(worker, died=False)
                return

    def _expect(self, channel: Channel, buffers: list[Tensor]) -> list[Callable[[], None]]:
        """Rows come unexpected: how many they are is told first."""
        tables = len(self.part.widths)
        return [channel.expect(buffer, gradient_tag(i)) for i, buffer in enumerate(buffers[tables:], tables)]


def _received(channel: Channel, tensor: Tensor, packet: int) -> Tensor:
    channel.expect(tensor, gradient_tag(packet))()
    return tensor


def _receive_rows(channel: Channel, packet: int, table: Tensor) -> None:
    """The rows of a gradient that are not zero: how many, which, and what is in them."""
    count = int(_received(channel, answer(), packet)[0])
    if count:
        chosen = _received(channel, torch.empty(count, dtype=torch.int64), packet)
        values = _received(channel, torch.empty(count, table.shape[1]), packet)
        table[chosen.to(table.device)] = values.to(table.device)
