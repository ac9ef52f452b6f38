"""Input prepared ahead of the step, in a background thread."""

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Keeps up to `depth` items of an iterator ready. An error in the iterator is raised where its item would come."""

    def __init__(self, items: Iterator[T], depth: int = 4) -> None:
        self._items = items
        self._ready: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="lockstep-input", daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        try:
            for item in self._items:
                if not self._put((item, None)):
                    return
            self._put((None, StopIteration()))
        except BaseException as error:
            self._put((None, error))

    def _put(self, entry: tuple[T | None, BaseException | None]) -> bool:
        while not self._stopped.is_set():
            try:
                self._ready.put(entry, timeout=0.5)
                return True
            except queue.Full:
                continue
        return False

    def __next__(self) -> T:
        item, error = self._ready.get()
        if error is not None:
            raise error
        return item  # type: ignore[return-value]

    def close(self) -> None:
        self._stopped.set()
        while self._thread.is_alive():  # it may be waiting for room
            with contextlib.suppress(queue.Empty):
                self._ready.get(timeout=0.01)
