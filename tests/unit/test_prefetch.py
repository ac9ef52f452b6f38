import threading
from collections.abc import Iterator

import pytest

from lockstep.train.prefetch import Prefetcher

PATIENCE_SECONDS = 30.0
"""Far more than any of these needs: it only turns a hang into a failure."""


def endless(started: list[int], enough: threading.Event | None = None, count: int = 0) -> Iterator[int]:
    """Counts from 0 on; notes what was begun, and sets `enough` when item `count` is asked for."""
    number = 0
    while True:
        started.append(number)
        if enough is not None and number == count:
            enough.set()
        yield number
        number += 1


def close(ahead: Prefetcher[int]) -> None:
    closing = threading.Thread(target=ahead.close, daemon=True)
    closing.start()
    closing.join(PATIENCE_SECONDS)
    assert not closing.is_alive()


def test_items_come_in_order() -> None:
    ahead = Prefetcher(endless([]), depth=3)
    assert [next(ahead) for _ in range(50)] == list(range(50))
    close(ahead)


def test_items_are_prepared_before_they_are_asked_for_but_no_more_than_the_depth() -> None:
    started: list[int] = []
    full = threading.Event()
    ahead = Prefetcher(endless(started, full, count=2), depth=3)
    assert full.wait(PATIENCE_SECONDS)
    close(ahead)  # what it was going to make it has made by now
    assert started == [0, 1, 2], "a fourth was begun although there is no room for it"


def test_an_error_is_raised_where_its_item_would_come() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third is broken")

    ahead = Prefetcher(failing())
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ValueError, match="the third is broken"):
        next(ahead)
    close(ahead)


def test_the_end_of_the_items_ends_the_iteration() -> None:
    ahead = Prefetcher(iter([1]))
    assert next(ahead) == 1
    with pytest.raises(StopIteration):
        next(ahead)
    close(ahead)


def test_closing_returns_while_the_producer_waits_for_room() -> None:
    full = threading.Event()
    ahead = Prefetcher(endless([], full, count=1), depth=2)
    assert full.wait(PATIENCE_SECONDS)
    close(ahead)
    assert "lockstep-input" not in {thread.name for thread in threading.enumerate()}


def test_closing_twice_or_after_an_error_is_harmless() -> None:
    ahead = Prefetcher(int(text) for text in ["not a number"])
    close(ahead)
    close(ahead)
