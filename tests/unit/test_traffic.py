from typing import Any

import torch
import torch.distributed as dist

from lockstep.parallel.sharded.traffic import Traffic
from lockstep.parallel.strategy import Stamp


class HandClock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.merged: dict[str, float] = {}

    def stamp(self) -> float:
        return self.now

    def between(self, begin: Stamp, end: Stamp) -> float:
        assert isinstance(begin, float)
        assert isinstance(end, float)
        return end - begin

    def since(self, begin: Stamp) -> float:
        return self.between(begin, self.now)

    def move(self, source: str, target: str, seconds: float) -> None:
        assert target == "merge"
        self.merged[source] = self.merged.get(source, 0.0) + seconds


class Message(dist.Work):
    """Arrives at a set time, or when somebody waits for it."""

    def __init__(self, clock: HandClock, arrives: float) -> None:
        super().__init__()
        self.clock, self.arrives = clock, arrives
        self.future: torch.futures.Future[None] = torch.futures.Future()

    def arrive(self) -> None:
        self.clock.now = max(self.clock.now, self.arrives)
        self.future.set_result(None)

    def wait(self, timeout: Any = None) -> bool:
        if not self.future.done():
            self.arrive()
        return True

    def get_future(self) -> torch.futures.Future[None]:
        return self.future


def test_only_waiting_is_exposed_and_the_rest_of_the_way_is_overlapped() -> None:
    clock = HandClock()
    traffic = Traffic(clock, silent=False)
    travel = traffic.depart(Message(clock, arrives=5.0), 100)
    clock.now = 3.0  # computed meanwhile
    travel.wait()
    assert clock.now == 5.0
    assert traffic.settle() == (100, 3.0)
    assert clock.merged == {"forward": 2.0}


def test_a_message_that_arrived_before_it_was_needed_exposes_nothing() -> None:
    clock = HandClock()
    traffic = Traffic(clock, silent=False)
    message = Message(clock, arrives=1.0)
    travel = traffic.depart(message, 8)
    message.arrive()
    clock.now = 4.0
    travel.wait()
    assert traffic.settle() == (8, 1.0)
    assert clock.merged == {"forward": 0.0}


def test_waits_are_booked_in_their_phases_and_messages_on_the_way_together_count_once() -> None:
    clock = HandClock()
    traffic = Traffic(clock, silent=False)
    first, second = (traffic.depart(Message(clock, arrives), 10) for arrives in (2.0, 6.0))
    first.wait()
    traffic.phase = "backward"
    clock.now = 5.0
    second.wait()
    traffic.phase = "update"
    with traffic.waiting():
        clock.now = 6.5
    assert traffic.settle() == (20, 2.5)  # under way for 6 seconds, exposed for 3.5
    assert clock.merged == {"forward": 2.0, "backward": 1.0, "update": 0.5}


def test_the_next_step_begins_with_empty_books() -> None:
    clock = HandClock()
    traffic = Traffic(clock, silent=False)
    traffic.depart(Message(clock, 1.0), 10).wait()
    traffic.settle()
    assert traffic.settle() == (0, 0.0)
