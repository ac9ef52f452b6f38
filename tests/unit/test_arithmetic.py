"""Achieved FLOP/s and the share of the peak."""

import numpy as np
import pytest

from lockstep.explain.formatting import si_number
from lockstep.explain.measures.arithmetic import Arithmetic, measure_arithmetic
from lockstep.explain.reading.record import Worker
from lockstep.explain.reading.steps import PHASES, WIDTH, Steps, make_row


def make_worker(*steps: tuple[int, int, float, bool], models: dict[int, tuple[float | None, float | None]]) -> Worker:
    """Makes a journal. Steps are (attempt, target words, seconds, warm-up), models {attempt: (FLOPs per word, peak)}."""
    phases = dict.fromkeys(PHASES, 0.0)
    lines = [
        {"step": number, "time": 0.0, "attempt": attempt, "words": {"target": words}, "seconds": seconds}
        | {"warmup": warmup, "phases": phases}
        for number, (attempt, words, seconds, warmup) in enumerate(steps)
    ]
    events = [
        {"kind": "model", "attempt": attempt, "parameters": 7, "flops_per_word": flops, "peak_flops": peak}
        for attempt, (flops, peak) in models.items()
    ]
    columns = Steps(*np.array([make_row(line) for line in lines]).reshape(-1, WIDTH).T)
    return Worker(0, columns, columns, events, 0)


def test_rate_and_share_follow_from_words_seconds_and_peak() -> None:
    arithmetic = measure_arithmetic(
        [make_worker((1, 10, 4.0, False), (1, 20, 6.0, False), models={1: (100.0, 500.0)})], 3.0
    )
    assert arithmetic == Arithmetic(7, 100.0, 3000 / 10, 500.0, 300 / 500)


def test_workers_add_up_each_with_its_own_time_and_peak() -> None:
    fast = make_worker((1, 40, 4.0, False), models={1: (100.0, 2000.0)})
    slow = make_worker((1, 10, 4.0, False), models={1: (100.0, 500.0)})
    arithmetic = measure_arithmetic([fast, slow], 12.5)
    assert arithmetic.flops_per_second == 1250
    assert arithmetic.peak_flops == 2500
    assert arithmetic.mfu == 0.5


def test_launches_with_other_workers_are_measured_against_their_own_peak() -> None:
    arithmetic = measure_arithmetic(
        [make_worker((1, 10, 4.0, False), (2, 10, 1.0, False), models={1: (100.0, 500.0), 2: (100.0, 1000.0)})], 4.0
    )
    assert arithmetic.mfu == pytest.approx(2000 / (4.0 * 500 + 1.0 * 1000))
    assert arithmetic.peak_flops == 1000


def test_workers_of_other_launches_do_not_count() -> None:
    stayed = make_worker((1, 99, 9.0, False), (2, 10, 4.0, False), models={1: (100.0, 900.0), 2: (100.0, 500.0)})
    gone = make_worker((1, 99, 9.0, False), models={1: (100.0, 900.0)})
    assert measure_arithmetic([stayed, gone], 2.5, attempts=(2,)) == Arithmetic(7, 100.0, 250.0, 500.0, 0.5)


def test_warmup_and_launches_that_were_not_measured_are_left_out() -> None:
    steps = (1, 99, 1.0, False), (2, 10, 4.0, False), (2, 99, 1.0, True)
    assert measure_arithmetic([make_worker(*steps, models={2: (100.0, 500.0)})], 2.5).mfu == 1000 / (4.0 * 500)


def test_what_was_not_measured_is_not_known() -> None:
    assert measure_arithmetic([make_worker((1, 10, 4.0, False), models={})], 2.5) == Arithmetic()
    assert measure_arithmetic([make_worker((1, 10, 4.0, False), models={1: (100.0, None)})], 2.5).mfu is None
    assert measure_arithmetic([make_worker(models={1: (100.0, 500.0)})], None).flops_per_second is None
    assert (
        measure_arithmetic([make_worker((1, 10, 4.0, False), models={1: (None, 500.0)})], 2.5).flops_per_second is None
    )


def test_more_than_the_peak_means_that_the_peak_is_wrong() -> None:
    arithmetic = measure_arithmetic([make_worker((1, 10, 4.0, False), models={1: (100.0, 50.0)})], 2.5)
    assert arithmetic.mfu is None
    assert "peak is not known" in arithmetic.text()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 "), (999.4, "999 "), (1000, "1.00 k"), (46_100_000, "46.1 M"), (168.4e9, "168 G"), (2e18, "2,000 P")],
)
def test_large_numbers_are_short(value: float, text: str) -> None:
    assert si_number(value) == text


def test_the_text_has_rate_share_and_flops_per_word() -> None:
    text = Arithmetic(7_569_408, 46.1e6, 111e9, 168e9, 0.66).text()
    assert text == "111 GFLOP/s (66% of the workers' measured peak, 168 GFLOP/s); 46.1 MFLOP per target word"
