"""Who computes which share, where workers take shares as fast as they can. It is kept in the store where they met.

The shares of all steps are numbered through. They are claimed by adding to a counter, and marked when they are done.
Wherever something is due all rest: nobody begins a later step before worker 0 has taken what it needs of the model. Shares
of a worker that died are computed again by worker 0.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import torch.distributed as dist

from lockstep.parallel.strategy import B, BatchSplitter, Claim, Pause
from lockstep.team import Team

CLOSED = 1 << 40
"""Added to the counter, it makes every later claim void."""
POLL_SECONDS = 0.01


class WorkQueue:
    def __init__(self, team: Team) -> None:
        self.team = team
        self.store = dist.PrefixStore("ledger", dist.distributed_c10d._get_default_store())
        self.resting = 0  # the step after which worker 0 looks at the model
        self._first = 1  # step of this launch
        self._again: set[int] = set()
        self._left = range(0)  # of a step that was closed half-way
        self._closed = self._over = False

    def close(self) -> None:
        """No new step is begun; those that were are still finished, what nobody has claimed of the last by us."""
        if not self._closed and self.store.add("closing", 1) == 1:
            claimed = self.store.add("claimed", CLOSED) - CLOSED
            steps = -(-claimed // self.team.size)
            self._left = range(claimed + 1, steps * self.team.size + 1)
            self.store.set("last", str(self._first - 1 + steps))
        self._closed = True

    def done(self, claim: Claim[B]) -> None:
        number = self._number(claim.step, claim.part)
        self.store.set(f"done/{number}", "1")
        self.store.add("done", 1)

    def died(self, worker: int) -> None:
        self.store.set(f"dead/{worker}", "1")

    def release(self) -> None:
        """Worker 0 has what it needs of the model; the steps after the rest may begin."""
        self.store.set(f"released/{self.resting}", "1")

    def end(self) -> None:
        self._over = True

    def _number(self, step: int, part: int) -> int:
        """From 1 on."""
        return (step - self._first) * self.team.size + part + 1

    def _place(self, number: int) -> tuple[int, int]:
        """Step and part."""
        step, part = divmod(number - 1, self.team.size)
        return self._first + step, part

    def claims(
        self, order: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B] | Pause[B]]:
        self._first = first
        recent: dict[int, B] = {}  # batches from the last rest on, by step
        numbered = enumerate(batches, first)
        rested = first - 1
        while True:
            number = self.store.add("claimed", 1)
            closed = number >= CLOSED
            if not closed:  # at once: a share without an owner is taken for a dead worker's
                self.store.set(f"owner/{number}", str(self.team.rank))
            last = self._last_step() if closed else self._place(number)[0]
            while not recent or max(recent) < last:
                step, batch = next(numbered)
                recent[step] = batch
            if closed:
                yield from (self._claim(order, recent, left) for left in self._left)
            for rest in [rest for rest in range(rested + 1, last) if due(rest)] + [last] * closed:
                yield from self._finish(order, recent, rested, rest)
                if rest < first:
                    return  # nothing was ever claimed
                self.resting = rest
                yield Pause(rest, recent[rest], closed and rest == last)
                self._forget(rested, rest)
                recent = {step: batch for step, batch in recent.items() if step >= rest}
                rested = rest
                if not self.team.primary:
                    self._wait_for(f"released/{rest}")
            if closed:
                return
            yield self._claim(order, recent, number)

    def _claim(self, order: BatchSplitter[B], recent: dict[int, B], number: int) -> Claim[B]:
        step, part = self._place(number)
        share = order.share(recent[step], part, self.team.size)
        return Claim(step, recent[step], share, max(1, order.target_words(share)), part)

    def _finish(self, order: BatchSplitter[B], recent: dict[int, B], rested: int, rest: int) -> Iterator[Claim[B]]:
        """Waits until all steps up to `rest` are done, and takes over shares of workers that died."""
        end = self._number(rest, self.team.size - 1)
        for turn in count():
            if self.store.add("done", 0) >= end or self._over:
                return
            if self.team.primary and turn % 50 == 49:  # now and then
                for number in self._orphans(range(self._number(rested + 1, 0), end + 1)):
                    if number not in self._again:
                        self._again.add(number)
                        yield replace(self._claim(order, recent, number), recomputed=True)
            time.sleep(POLL_SECONDS)

    def _orphans(self, numbers: range) -> list[int]:
        dead = [worker for worker in range(self.team.size) if self.store.check([f"dead/{worker}"])]
        if not dead:
            return []
        missing = [number for number in numbers if not self.store.check([f"done/{number}"])]
        return [number for number in missing if self._owner(number) in (*dead, None)]

    def _owner(self, number: int) -> int | None:
        return int(self.store.get(f"owner/{number}")) if self.store.check([f"owner/{number}"]) else None

    def _forget(self, rested: int, rest: int) -> None:
        begin, end = self._number(rested + 1, 0), self._number(rest + 1, 0)
        for number in range(begin, end) if self.team.primary else ():
            self.store.delete_key(f"owner/{number}")
            self.store.delete_key(f"done/{number}")

    def _last_step(self) -> int:
        self._wait_for("last")
        return int(self.store.get("last"))

    def _wait_for(self, key: str) -> None:
        while not self.store.check([key]) and not self._over:
            time.sleep(POLL_SECONDS)
