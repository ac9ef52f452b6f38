"""Who computes which step, where workers take steps as fast as they can. It is kept in the store where they met.

Steps are claimed by adding to a counter, and marked when they are done. Wherever something is due all rest: nobody begins a
later step before worker 0 has taken what it needs of the model. Steps of a worker that died are computed again by worker 0.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import torch.distributed as dist

from lockstep.parallel.strategy import B, Claim, Order, Rest
from lockstep.team import Team

CLOSED = 1 << 40
"""Added to the counter, it makes every later claim void."""
POLL_SECONDS = 0.01


class Ledger:
    def __init__(self, team: Team) -> None:
        self.team = team
        self._again: set[int] = set()  # steps of workers that died
        self.store = dist.PrefixStore("ledger", dist.distributed_c10d._get_default_store())
        self._first = 1
        self.resting = 0
        self._closed = False
        self._over = False

    def close(self) -> None:
        """No step is claimed any more; all that were claimed are still computed."""
        if not self._closed and self.store.add("closing", 1) == 1:
            self.store.set("last", str(self._first - 1 + self.store.add("claimed", CLOSED) - CLOSED))
        self._closed = True

    def done(self, step: int) -> None:
        self.store.set(f"done/{step}", "1")
        self.store.add("done", 1)

    def died(self, worker: int) -> None:
        self.store.set(f"dead/{worker}", "1")

    def release(self) -> None:
        """Worker 0 has what it needs of the model; the steps after the rest may begin."""
        self.store.set(f"released/{self.resting}", "1")

    def end(self) -> None:
        self._over = True

    def claims(
        self, order: Order[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B] | Rest[B]]:
        self._first = first
        recent: dict[int, B] = {}  # batches from the last rest on, by step
        numbered = enumerate(batches, first)
        rested = first - 1
        while True:
            step = first - 1 + self.store.add("claimed", 1)
            closed = step >= CLOSED
            last = self._last_step() if closed else step
            while not recent or max(recent) < last:
                number, batch = next(numbered)
                recent[number] = batch
            for rest in [rest for rest in range(rested + 1, last) if due(rest)] + [last] * closed:
                yield from self._finish(order, recent, rested, rest)
                if rest < first:
                    return  # nothing was ever claimed
                self.resting = rest
                yield Rest(rest, recent[rest], closed and rest == last)
                self._forget(range(rested + 1, rest + 1))
                recent = {number: batch for number, batch in recent.items() if number >= rest}
                rested = rest
                if not self.team.primary:
                    self._wait_for(f"released/{rest}")
            if closed:
                return
            self.store.set(f"owner/{step}", str(self.team.rank))
            yield self._claim(order, recent[step], step)

    def _forget(self, steps: range) -> None:
        for step in steps if self.team.primary else ():
            self.store.delete_key(f"owner/{step}")
            self.store.delete_key(f"done/{step}")

    def _claim(self, order: Order[B], batch: B, step: int) -> Claim[B]:
        """A whole batch, in as many pieces as there are workers: each is as large as a share of it would be."""
        pieces = [order.share(batch, worker, self.team.size) for worker in range(self.team.size)]
        return Claim(step, batch, [piece for piece in pieces if len(piece)], batch.target_words)

    def _last_step(self) -> int:
        self._wait_for("last")
        return int(self.store.get("last"))

    def _finish(self, order: Order[B], recent: dict[int, B], rested: int, rest: int) -> Iterator[Claim[B]]:
        """Waits until all steps up to `rest` are done, and takes over those of workers that died."""
        for turn in count():
            if self.store.add("done", 0) >= rest - self._first + 1 or self._over:
                return
            if self.team.primary and turn % 50 == 49:  # now and then
                for step in self._orphans(range(rested + 1, rest + 1)):
                    if step not in self._again:
                        self._again.add(step)
                        yield replace(self._claim(order, recent[step], step), again=True)
            time.sleep(POLL_SECONDS)

    def _orphans(self, steps: range) -> list[int]:
        dead = [worker for worker in range(self.team.size) if self.store.check([f"dead/{worker}"])]
        if not dead:
            return []
        missing = [step for step in steps if not self.store.check([f"done/{step}"])]
        return [step for step in missing if self._owner(step) in (*dead, None)]

    def _owner(self, step: int) -> int | None:
        return int(self.store.get(f"owner/{step}")) if self.store.check([f"owner/{step}"]) else None

    def _wait_for(self, key: str) -> None:
        while not self.store.check([key]) and not self._over:
            time.sleep(POLL_SECONDS)
