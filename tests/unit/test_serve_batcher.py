"""Sentences of concurrent requests share batches, in turns; those that nobody waits for are dropped."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from lockstep.serve import batcher
from lockstep.serve.batcher import Batcher, QueueFull
from lockstep.translate.search_settings import SearchSettings
from lockstep.translate.translator import Candidate, PieceAttention, TranslatedLine


class WordByWord:
    """Translates by rule: every word in capitals. It notes its batches, and can be made to wait or to fail."""

    can_attend = True

    def __init__(self, source: str = "en", target: str = "de", beam: int = 4) -> None:
        self.languages = (source, target)
        self.search = SearchSettings(beam=beam)
        self.batches: list[list[str]] = []
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Event()

    def translate_each(
        self,
        texts: list[str],
        report: Callable[[int], None] = lambda size: None,
        *,
        n_best: int = 1,
        with_attention: bool = False,
    ) -> list[TranslatedLine]:
        self.batches.append(list(texts))
        self.begun.set()
        self.go.wait()
        if "fail" in texts:
            raise RuntimeError("asked to fail")
        return [self._translate(text, n_best, with_attention) for text in texts]

    def _translate(self, text: str, n_best: int, with_attention: bool) -> TranslatedLine:
        candidates = tuple(Candidate(text.upper() + "!" * place, -float(place)) for place in range(n_best))
        pieces = [f"▁{word}" for word in text.split()]
        attention = PieceAttention(pieces, [piece.upper() for piece in pieces], np.eye(len(pieces), dtype=np.float32))
        return TranslatedLine(
            candidates[0].text,
            pieces=len(pieces) + 1,
            candidates=candidates,
            attention=(attention,) if with_attention else (),
        )


@contextmanager
def batching(translator: WordByWord, most_waiting: int = 1000, window: float = 0.05) -> Iterator[Batcher]:
    made = Batcher(translator, most_waiting, window)
    yield made
    translator.go.set()
    made.close()


def run(work: Coroutine[None, None, None]) -> None:
    async def within_time() -> None:
        async with asyncio.timeout(20):
            await work

    asyncio.run(within_time())


async def start(work: Coroutine[None, None, list[TranslatedLine]]) -> asyncio.Task[list[TranslatedLine]]:
    """Starts a request, which is in the queue when this returns."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    return task


async def occupy(made: Batcher, translator: WordByWord) -> asyncio.Task[list[TranslatedLine]]:
    """Keeps the decoding thread busy until `translator.go` is set."""
    translator.go.clear()
    task = await start(made.translate(["busy"]))
    await asyncio.to_thread(translator.begun.wait)
    return task


def test_requests_that_arrive_together_share_a_batch() -> None:
    translator = WordByWord()

    async def ask(made: Batcher) -> None:
        answers = await asyncio.gather(*(made.translate([f"a{i}", f"b{i}"]) for i in range(5)))
        assert [[line.text for line in answer] for answer in answers] == [[f"A{i}", f"B{i}"] for i in range(5)]

    with batching(translator) as made:
        run(ask(made))
    assert len(translator.batches) == 1


def test_sentences_that_arrive_during_a_batch_make_up_the_next_one() -> None:
    translator = WordByWord()

    async def ask(made: Batcher) -> None:
        busy = await occupy(made, translator)
        others = [await start(made.translate([f"a{i}"])) for i in range(7)]
        translator.go.set()
        await asyncio.gather(busy, *others)

    with batching(translator, window=0.0) as made:
        run(ask(made))
    assert translator.batches == [["busy"], [f"a{i}" for i in range(7)]]


def test_a_long_request_takes_turns_with_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "BATCH_SENTENCES", 4)
    translator = WordByWord()

    async def ask(made: Batcher) -> None:
        busy = await occupy(made, translator)
        long = await start(made.translate([f"long{i}" for i in range(6)]))
        short = [await start(made.translate([f"short{i}"])) for i in range(2)]
        translator.go.set()
        lines = (await asyncio.gather(busy, *short, long))[-1]
        assert [line.text for line in lines] == [f"LONG{i}" for i in range(6)]

    with batching(translator) as made:
        run(ask(made))
    assert translator.batches[1:] == [["long0", "short0", "short1", "long1"], ["long2", "long3", "long4", "long5"]]


def test_only_requests_that_want_the_same_share_a_batch() -> None:
    translator = WordByWord()

    async def ask(made: Batcher) -> None:
        busy = await occupy(made, translator)
        plain = [await start(made.translate([name])) for name in ("a", "b")]
        several = [await start(made.translate([name], n_best=3)) for name in ("c", "d")]
        linked = await start(made.translate(["e"], with_attention=True))
        translator.go.set()
        answers = await asyncio.gather(busy, *plain, *several, linked)
        assert [len(answer[0].candidates) for answer in answers] == [1, 1, 1, 3, 3, 1]
        assert [len(answer[0].attention) for answer in answers] == [0, 0, 0, 0, 0, 1]

    with batching(translator) as made:
        run(ask(made))
    assert translator.batches[1:] == [["a", "b"], ["c", "d"], ["e"]]


def test_a_beam_bounds_the_candidates() -> None:
    async def ask(made: Batcher) -> None:
        (line,) = await made.translate(["a"], n_best=6)
        assert len(line.candidates) == 2

    with batching(WordByWord(beam=2)) as made:
        run(ask(made))


def test_sentences_of_a_cancelled_request_are_dropped() -> None:
    translator = WordByWord()

    async def ask(made: Batcher) -> None:
        busy = await occupy(made, translator)
        dropped, other = await start(made.translate(["x", "y"])), await start(made.translate(["z"]))
        dropped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dropped
        assert made.waiting == 1
        translator.go.set()
        await asyncio.gather(busy, other)

    with batching(translator) as made:
        run(ask(made))
    assert translator.batches == [["busy"], ["z"]]


def test_a_full_queue_refuses_requests_but_never_the_first() -> None:
    translator = WordByWord()

    async def ask(made: Batcher) -> None:
        busy = await occupy(made, translator)
        first = await start(made.translate(["a"] * 5))
        with pytest.raises(QueueFull):
            await made.translate(["b"])
        translator.go.set()
        await asyncio.gather(busy, first)
        assert (await made.translate(["b"]))[0].text == "B"

    with batching(translator, most_waiting=2) as made:
        run(ask(made))


def test_a_failed_batch_fails_its_requests_and_no_others() -> None:
    async def ask(made: Batcher) -> None:
        with pytest.raises(RuntimeError, match="asked to fail"):
            await made.translate(["fail"])
        assert (await made.translate(["a"]))[0].text == "A"
        assert await made.translate([]) == []

    with batching(WordByWord()) as made:
        run(ask(made))
