"""Translates the sentences of concurrent requests together: one queue and one decoding thread for each model."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from lockstep.translate.search_settings import SearchSettings
from lockstep.translate.translator import TranslatedLine

WINDOW_SECONDS = 0.005
"""How long an idle model waits for more sentences after the first one."""
BATCH_SENTENCES = 48
BATCH_CHARACTERS = 16_384
"""A batch ends when it has one of these. It bounds the time that a new request waits for the batch before it."""


class LineTranslator(Protocol):
    """What the server needs of `lockstep.translate.translator.Translator`."""

    languages: tuple[str, str]
    search: SearchSettings

    @property
    def can_attend(self) -> bool: ...

    def translate_each(
        self,
        texts: list[str],
        report: Callable[[int], None] = ...,
        *,
        n_best: int = 1,
        with_attention: bool = False,
    ) -> list[TranslatedLine]: ...


class Wanted(NamedTuple):
    """What a request wants to know of each sentence. Only sentences that want the same share a batch."""

    n_best: int
    with_attention: bool


class QueueFull(Exception):
    """More sentences wait than the queue may have."""


class _Job:
    """The sentences of one request. The decoding thread fills `lines`; the event loop owns `result`."""

    def __init__(self, texts: Sequence[str], wanted: Wanted) -> None:
        self.texts, self.wanted = texts, wanted
        self.taken = 0
        self.lines: dict[int, TranslatedLine] = {}
        self.loop = asyncio.get_running_loop()
        self.result: asyncio.Future[list[TranslatedLine]] = self.loop.create_future()

    @property
    def waiting(self) -> int:
        return len(self.texts) - self.taken

    def deliver(self) -> None:
        if not self.result.done():
            self.result.set_result([self.lines[place] for place in range(len(self.texts))])

    def fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class Batcher:
    """Collects sentences of many requests into batches for one translator.

    An idle model waits a moment for company when a sentence arrives. Whatever arrives while it translates makes up the next
    batch. Requests take turns, one sentence each, so a long text does not hold up short ones.
    """

    def __init__(self, translator: LineTranslator, most_waiting: int, window: float = WINDOW_SECONDS) -> None:
        self.translator = translator
        self._most_waiting, self._window = most_waiting, window
        self._jobs: list[_Job] = []
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="-".join(translator.languages), daemon=True)
        self._thread.start()

    async def translate(
        self, texts: Sequence[str], *, n_best: int = 1, with_attention: bool = False
    ) -> list[TranslatedLine]:
        """Returns the translations in the order of the texts. Raises `QueueFull` if too many sentences wait already. If it
        is cancelled, those that still wait are dropped."""
        if not texts:
            return []
        job = _Job(texts, Wanted(min(n_best, self.translator.search.beam), with_attention))
        with self._changed:
            waiting = self.waiting
            if waiting and waiting + len(texts) > self._most_waiting:
                raise QueueFull
            self._jobs.append(job)
            self._changed.notify()
        try:
            return await job.result
        finally:
            with self._changed:
                if job in self._jobs:
                    self._jobs.remove(job)

    @property
    def waiting(self) -> int:
        """Sentences that no batch has taken yet."""
        return sum(job.waiting for job in self._jobs)

    def close(self) -> None:
        """Ends the decoding thread after the batch that it translates."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._jobs:
                    self._changed.wait_for(lambda: self._jobs or self._is_closed)
                    self._changed.wait_for(lambda: self.waiting >= BATCH_SENTENCES or self._is_closed, self._window)
                if self._is_closed:
                    return
                batch = self._take_batch()
            if batch:
                self._translate(batch)

    def _take_batch(self) -> list[tuple[_Job, int]]:
        """Takes sentences of all requests that want the same as the first one. Those that are not done go to the end."""
        if not self._jobs:  # all were cancelled
            return []
        wanted = self._jobs[0].wanted
        turns = deque(job for job in self._jobs if job.wanted == wanted)
        batch: list[tuple[_Job, int]] = []
        characters = 0
        while turns and len(batch) < BATCH_SENTENCES and characters < BATCH_CHARACTERS:
            job = turns.popleft()
            batch.append((job, job.taken))
            characters += len(job.texts[job.taken])
            job.taken += 1
            if job.waiting:
                turns.append(job)
        self._jobs = [job for job in self._jobs if job.wanted != wanted] + list(turns)
        return batch

    def _translate(self, batch: list[tuple[_Job, int]]) -> None:
        texts = [job.texts[place] for job, place in batch]
        (wanted,) = {job.wanted for job, _ in batch}
        try:
            lines = self.translator.translate_each(texts, n_best=wanted.n_best, with_attention=wanted.with_attention)
        except Exception as error:
            for job in {job for job, _ in batch}:
                _call_in_loop(job, job.fail, error)
            return
        for (job, place), line in zip(batch, lines, strict=True):
            job.lines[place] = line
        for job in {job for job, _ in batch}:
            if len(job.lines) == len(job.texts):
                _call_in_loop(job, job.deliver)


def _call_in_loop(job: _Job, function: Callable[..., None], *arguments: object) -> None:
    """Calls a function in the thread of the request's event loop, unless the server has ended meanwhile."""
    if not job.loop.is_closed():
        job.loop.call_soon_threadsafe(function, *arguments)
