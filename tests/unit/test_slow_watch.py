"""Who is named as slow: made-up speeds of workers, second by second."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from lockstep.heartbeat import WorkDone
from lockstep.launch.processor_use import ProcessorUse
from lockstep.launch.slow_watch import Look, SlowWatch, SlowWorker

STEPS_PER_SECOND = 5


@dataclass(frozen=True)
class Second:
    """One worker's share of a second: seconds of work per step, and what the system says."""

    work: float
    words: int = 100
    input: float = 0.0
    cpu: float | None = None  # None: all of its work
    throttled: float = 0.0
    queued: float = 0.0


def simulate(
    speeds: Callable[[int, int], Second], workers: int = 2, seconds: int = 130
) -> Iterator[tuple[int, list[SlowWorker], list[SlowWorker]]]:
    """Yields every second and who is slow and who is fast since then."""
    watch, looks = SlowWatch(), {rank: Look(WorkDone(0, 0, 0.0, 0.0), ProcessorUse()) for rank in range(workers)}
    for second in range(seconds):
        slow, fast = watch.check(looks, float(second))
        if slow or fast:
            yield second, slow, fast
        for rank, look in looks.items():
            one, done, use, steps = speeds(rank, second), look.work, look.use, STEPS_PER_SECOND
            work = WorkDone(
                done.steps + steps,
                done.words + steps * one.words,
                done.seconds + steps * (one.work + one.input),
                done.input_seconds + steps * one.input,
            )
            waited = dict(use.queues).get(rank, 0.0) + steps * one.queued
            cpu = use.cpu_seconds + steps * (one.work if one.cpu is None else one.cpu)
            looks[rank] = Look(
                work, ProcessorUse(cpu, use.throttled_seconds + steps * one.throttled, ((rank, waited),))
            )


@pytest.mark.parametrize("workers", [2, 3])
def test_a_persistently_slow_worker_is_named_after_three_windows(workers: int) -> None:
    ((second, (slow,), _),) = simulate(lambda rank, _: Second(0.15 if rank == 1 else 0.10), workers)
    assert (slow.rank, second) == (1, 60)
    assert slow.share == pytest.approx(0.05 * STEPS_PER_SECOND, rel=0.05)
    assert slow.sentence == (
        "Worker 1 has been 50 % slower than the others for 60 s, which costs 25 % of the time: its cores do less per "
        "second (a lower frequency, or a neighbour on the machine) (supported)."
    )


@pytest.mark.parametrize(
    ("second", "cause", "evidence"),
    [
        (Second(0.15, cpu=0.10), "nothing that was seen explains it", "unknown"),
        (Second(0.15, cpu=0.10, throttled=0.04), "its cgroup throttles it", "established"),
        (Second(0.15, cpu=0.10, queued=0.04), "other programs use its cores", "supported"),
        (Second(0.10, input=0.05), "it waits for its input", "supported"),
    ],
)
def test_the_cause_is_what_explains_most_of_the_lost_time(second: Second, cause: str, evidence: str) -> None:
    ((_, (slow,), _),) = simulate(lambda rank, _: second if rank == 0 else Second(0.10))
    assert (slow.rank, slow.cause, slow.evidence) == (0, cause, evidence)


def test_on_an_overloaded_machine_only_a_worker_s_own_causes_are_named() -> None:
    usual = Second(0.10, cpu=0.05, queued=0.04)
    for slow in (Second(0.15, cpu=0.05, queued=0.09), Second(0.15, cpu=0.05, queued=0.04)):
        assert list(simulate(lambda rank, _, slow=slow: slow if rank == 0 else usual)) == []  # type: ignore[misc]
    throttled = Second(0.15, cpu=0.05, queued=0.04, throttled=0.05)
    ((_, (named,), _),) = simulate(lambda rank, _: throttled if rank == 0 else usual)
    assert named.cause == "its cgroup throttles it"


def test_a_worker_is_fast_again_after_two_windows() -> None:
    (_, (slow,), _), (second, _, (fast,)) = simulate(lambda rank, now: Second(0.15 if rank == 1 and now < 70 else 0.10))
    assert (slow.rank, fast.rank) == (1, 1)
    assert second in (100, 120)


def test_noise_pauses_and_a_larger_share_are_no_slow_worker() -> None:
    draw = random.Random(1)

    def noisy(rank: int, second: int) -> Second:
        pause = 5.0 if rank == 1 and second % 20 == 10 else 0.0
        return Second(0.1 * draw.uniform(0.7, 1.3) + pause)

    assert list(simulate(noisy, seconds=600)) == []
    assert list(simulate(lambda rank, _: Second(0.11 if rank else 0.1), seconds=600)) == []
    assert list(simulate(lambda rank, _: Second(0.15, words=150) if rank else Second(0.1), seconds=600)) == []
    assert list(simulate(lambda rank, now: Second(0.2 if (now // 40) % 2 == rank else 0.1), seconds=600)) == []
