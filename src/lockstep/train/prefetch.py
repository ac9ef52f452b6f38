"""Input prepared ahead of the step, in a background thread."""

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """Keeps up to `depth` items of an iterator ready. An error in the iterator is raised where its item would come."""

    def __init__(self, items: Iterator[T], depth: int = 4) -> None:
        self._items = items
        self._ready: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
        self._room = threading.Semaphore(depth)  # taken before an item is made: making one may commit to it
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
        self._thread.join(timeout=5.0)  # it may be waiting for other workers, who are gone
