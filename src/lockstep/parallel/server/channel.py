"""Messages between a worker and a parameter server: torch's point-to-point messages, or within one process."""

import queue
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import torch.distributed as dist
from torch import Tensor

Wait = Callable[[], None]
"""Returns when the message has arrived."""


class Channel(Protocol):
    """Messages between two ends. Messages with the same tag arrive in order."""

    def send(self, tensor: Tensor, tag: int) -> None: ...

    def expect(self, tensor: Tensor, tag: int) -> Wait:
        """Receives the next message with this tag into `tensor`."""
        ...


class Remote:
    """A channel to another process. A peer that dies is noticed at once, one that hangs after `timeout`."""

    def __init__(self, peer: int, group: dist.ProcessGroup, timeout: timedelta | None = None) -> None:
        self.peer, self.group, self.timeout = peer, group, timeout

    def send(self, tensor: Tensor, tag: int) -> None:
        self._wait(dist.isend(tensor.cpu(), self.peer, self.group, tag))

    def expect(self, tensor: Tensor, tag: int) -> Wait:
        work = dist.irecv(tensor, self.peer, self.group, tag)
        return lambda: self._wait(work)

    def _wait(self, work: dist.Work | None) -> None:
        assert work is not None
        if self.timeout is None:
            work.wait()
        else:
            work.wait(self.timeout)


Queues = dict[int, "queue.SimpleQueue[Tensor]"]


class InProcess:
    """A channel between two threads of one process, by its two ends. Nothing is serialized: the receiver copies from the
    sender's tensor, and answers before the sender changes it."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        to_server: Queues = {}
        to_worker: Queues = {}
        self.worker_end = InProcessEnd(self, to_worker, to_server)
        self.server_end = InProcessEnd(self, to_server, to_worker)


class InProcessEnd:
    def __init__(self, channel: InProcess, inbox: Queues, outbox: Queues) -> None:
        self.channel, self.inbox, self.outbox = channel, inbox, outbox

    def send(self, tensor: Tensor, tag: int) -> None:
        self.outbox.setdefault(tag, queue.SimpleQueue()).put(tensor)

    def expect(self, tensor: Tensor, tag: int) -> Wait:
        messages = self.inbox.setdefault(tag, queue.SimpleQueue())

        def wait() -> None:
            while True:
                try:
                    tensor.copy_(messages.get(timeout=0.5))
                    return
                except queue.Empty:
                    if self.channel.failure is not None:
                        raise self.channel.failure from None

        return wait
