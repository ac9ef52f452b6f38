"""Prepares the input of the next steps in a background thread."""

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch

from lockstep import faults
from lockstep.ablation import Ablation
from lockstep.parallel.strategy import Claim, Pause
from lockstep.tasks.task import GlobalBatch, MicroBatch, Task

T = TypeVar("T")
Prefetched = tuple[Claim[GlobalBatch] | Pause[GlobalBatch], Sequence[MicroBatch]]


class Prefetcher(Generic[T]):
    """Keeps up to `depth` items of an iterator ready. An error in the iterator is raised where its item would come."""

    def __init__(self, items: Iterator[T], depth: int = 4) -> None:
        self._items = items
        self._ready: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
        self._room = threading.Semaphore(depth)  # taken before an item is made: making one may claim work
        self._stopped = False
        self._thread = threading.Thread(target=self._fill, name="lockstep-input", daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        try:
            while self._room.acquire() and not self._stopped:
                self._ready.put((next(self._items), None))
        except BaseException as error:
            self._ready.put((None, error))

    def __next__(self) -> T:
        item, error = self._ready.get()
        if error is not None:
            raise error
        self._room.release()
        return item  # type: ignore[return-value]

    def close(self) -> None:
        self._stopped = True
        self._room.release()
        self._thread.join(timeout=5.0)  # it may be waiting for workers that are gone


@dataclass
class MicroBatchMaker:
    """Makes the tensors of claims. In an ablation run without input it reuses the first `reuse` batches."""

    task: Task
    device: torch.device
    ablation: Ablation
    reuse: int
    _first: list[Sequence[MicroBatch]] = field(default_factory=list)

    def make(self, claim: Claim[GlobalBatch] | Pause[GlobalBatch]) -> Sequence[MicroBatch]:
        if isinstance(claim, Pause):
            return []
        if self.ablation.input and len(self._first) == self.reuse:
            return self._first[claim.step % self.reuse]
        begin = time.perf_counter()
        micro_batches = list(self.task.micro_batches(claim.share, claim.step))
        for _ in range(claim.empty_micro_batches):
            micro_batches += self.task.micro_batches(claim.share[:0], claim.step)
        faults.slow("input", time.perf_counter() - begin)
        if self.device.type == "cuda":
            micro_batches = [micro.pin() for micro in micro_batches]
        if len(self._first) < self.reuse and self.ablation.active:
            self._first.append(micro_batches)
        return micro_batches
