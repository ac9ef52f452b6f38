"""Which worker computes which share, where workers take shares as fast as they can.

The queue lives in the rendezvous store. The shares of all steps are numbered consecutively. A worker claims one by adding
to a counter, and marks it when it is done. Where an evaluation or save is due all workers pause: nobody begins a later step
before worker 0 has its snapshot. Worker 0 recomputes the shares of a worker that died.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import torch.distributed as dist

from lockstep.parallel.strategy import B, BatchSplitter, Claim, Pause
from lockstep.team import Team

CLOSED = 1 << 40
"""Added to the counter, it makes every later claim invalid."""
POLL_SECONDS = 0.01


class WorkQueue:
    """One worker's view of the queue."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self.store = dist.PrefixStore("work-queue", dist.distributed_c10d._get_default_store())
        self.paused_after = 0  # the step of the current pause
        self._first = 1  # step of this launch
        self._recomputed: set[int] = set()
        self._unclaimed = range(0)  # shares of a step that was closed half-way
        self._closed = self._ended = False

    def close(self) -> None:
        """Lets no new step begin. Started steps are finished; this worker takes the unclaimed shares of the last one."""
        if not self._closed and self.store.add("closing", 1) == 1:
            claimed = self.store.add("claimed", CLOSED) - CLOSED
            steps = -(-claimed // self.team.size)
            self._unclaimed = range(claimed + 1, steps * self.team.size + 1)
            self.store.set("last", str(self._first - 1 + steps))
        self._closed = True

    def is_closing(self) -> bool:
        """Whether a worker has asked to let no new step begin."""
        return self.store.add("closing", 0) > 0

    def mark_done(self, claim: Claim[B]) -> None:
        number = self._number(claim.step, claim.part)
        self.store.set(f"done/{number}", "1")
        self.store.add("done", 1)

    def mark_dead(self, worker: int) -> None:
        self.store.set(f"dead/{worker}", "1")

    def release(self) -> None:
        """Worker 0 has its snapshot: the steps after the pause may begin."""
        self.store.set(f"released/{self.paused_after}", "1")

    def end(self) -> None:
        self._ended = True

    def _number(self, step: int, part: int) -> int:
        """Returns the number of a share, from 1."""
        return (step - self._first) * self.team.size + part + 1

    def _step_and_part(self, number: int) -> tuple[int, int]:
        step, part = divmod(number - 1, self.team.size)
        return self._first + step, part

    def claims(
        self, splitter: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B] | Pause[B]]:
        """Yields shares that this worker claimed, and a pause after every step for which `due` is true."""
        self._first = first
        recent: dict[int, B] = {}  # batches since the last pause, by step
        numbered = enumerate(batches, first)
        last_pause = first - 1
        while True:
            number = self.store.add("claimed", 1)
            closed = number >= CLOSED
            if not closed:  # at once: a share without an owner counts as a dead worker's
                self.store.set(f"owner/{number}", str(self.team.rank))
            last = self._last_step() if closed else self._step_and_part(number)[0]
            while not recent or max(recent) < last:
                step, batch = next(numbered)
                recent[step] = batch
            if closed:
                yield from (self._claim(splitter, recent, left) for left in self._unclaimed)
            for step in [step for step in range(last_pause + 1, last) if due(step)] + [last] * closed:
                yield from self._finish(splitter, recent, last_pause, step)
                if step < first:
                    return  # nothing was ever claimed
                self.paused_after = step
                yield Pause(step, recent[step], closed and step == last)
                self._delete_keys(last_pause, step)
                recent = {number: batch for number, batch in recent.items() if number >= step}
                last_pause = step
                if not self.team.primary:
                    self._wait_for(f"released/{step}")
            if closed:
                return
            yield self._claim(splitter, recent, number)

    def _claim(self, splitter: BatchSplitter[B], recent: dict[int, B], number: int) -> Claim[B]:
        step, part = self._step_and_part(number)
        share = splitter.share(recent[step], part, self.team.size)
        return Claim(step, recent[step], share, max(1, splitter.target_words(share)), part)

    def _finish(
        self, splitter: BatchSplitter[B], recent: dict[int, B], last_pause: int, pause: int
    ) -> Iterator[Claim[B]]:
        """Waits until all steps up to `pause` are done; worker 0 takes over shares of workers that died."""
        end = self._number(pause, self.team.size - 1)
        for turn in count():
            if self.store.add("done", 0) >= end or self._ended:
                return
            if self.team.primary and turn % 50 == 49:  # every half a second
                for number in self._orphans(range(self._number(last_pause + 1, 0), end + 1)):
                    if number not in self._recomputed:
                        self._recomputed.add(number)
                        yield replace(self._claim(splitter, recent, number), recomputed=True)
            time.sleep(POLL_SECONDS)

    def _orphans(self, numbers: range) -> list[int]:
        dead = [worker for worker in range(self.team.size) if self.store.check([f"dead/{worker}"])]
        if not dead:
            return []
        missing = [number for number in numbers if not self.store.check([f"done/{number}"])]
        return [number for number in missing if self._owner(number) in (*dead, None)]

    def _owner(self, number: int) -> int | None:
        return int(self.store.get(f"owner/{number}")) if self.store.check([f"owner/{number}"]) else None

    def _delete_keys(self, last_pause: int, pause: int) -> None:
        begin, end = self._number(last_pause + 1, 0), self._number(pause + 1, 0)
        for number in range(begin, end) if self.team.primary else ():
            self.store.delete_key(f"owner/{number}")
            self.store.delete_key(f"done/{number}")

    def _last_step(self) -> int:
        self._wait_for("last")
        return int(self.store.get("last"))

    def _wait_for(self, key: str) -> None:
        while not self.store.check([key]) and not self._ended:
            time.sleep(POLL_SECONDS)
