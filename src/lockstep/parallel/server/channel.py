"""How a worker and a holder of parameters talk: by torch's point-to-point messages, or within one process."""

import queue
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import torch.distributed as dist
from torch import Tensor

Arrived = Callable[[], None]
"""Waits until a message has arrived."""


class Channel(Protocol):
    """Messages between two ends; those with the same tag keep their order."""

    def send(self, tensor: Tensor, tag: int) -> None: ...

    def expect(self, tensor: Tensor, tag: int) -> Arrived:
        """Says where the next message with this tag goes."""
        ...


class Remote:
    """To another process. A peer that dies is noticed at once; one that hangs, after `timeout`."""

    def __init__(self, peer: int, group: dist.ProcessGroup, timeout: timedelta | None = None) -> None:
        self.peer, self.group, self.timeout = peer, group, timeout

    def send(self, tensor: Tensor, tag: int) -> None:
        self._wait(dist.isend(tensor.cpu(), self.peer, self.group, tag))

    def expect(self, tensor: Tensor, tag: int) -> Arrived:
        work = dist.irecv(tensor, self.peer, self.group, tag)
        return lambda: self._wait(work)

    def _wait(self, work: dist.Work | None) -> None:
        assert work is not None
        if self.timeout is None:
            work.wait()
        else:
            work.wait(self.timeout)


Boxes = dict[int, "queue.SimpleQueue[Tensor]"]


class InProcess:
    """Within a process nothing travels: the reader copies from the writer's tensor, and answers before the writer
    changes it."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        there: Boxes = {}
        back: Boxes = {}
        self.worker, self.holder = InProcessEnd(self, back, there), InProcessEnd(self, there, back)


class InProcessEnd:
    def __init__(self, desk: InProcess, inbox: Boxes, outbox: Boxes) -> None:
        self.desk, self.inbox, self.outbox = desk, inbox, outbox

    def send(self, tensor: Tensor, tag: int) -> None:
        self.outbox.setdefault(tag, queue.SimpleQueue()).put(tensor)

    def expect(self, tensor: Tensor, tag: int) -> Arrived:
        box = self.inbox.setdefault(tag, queue.SimpleQueue())

        def wait() -> None:
            while True:
                try:
                    tensor.copy_(box.get(timeout=0.5))
                    return
                except queue.Empty:
                    if self.desk.failure is not None:
                        raise self.desk.failure from None

        return wait
