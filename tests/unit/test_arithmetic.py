import pytest

from lockstep.explain.arithmetic import Arithmetic, arithmetic, metric


def model(attempt: int, flops_per_word: float | None, peak: float | None) -> dict[str, object]:
    return {"attempt": attempt, "parameters": 7, "flops_per_word": flops_per_word, "peak_flops_all": peak}


def test_rate_and_share_follow_from_words_seconds_and_peak() -> None:
    found = arithmetic([model(1, 100.0, 500.0)], [(1, 10, 4.0), (1, 20, 6.0)])
    assert found == Arithmetic(7, 100.0, 3000 / 10, 500.0, 300 / 500)


def test_launches_with_other_workers_are_measured_against_their_own_peak() -> None:
    found = arithmetic([model(1, 100.0, 500.0), model(2, 100.0, 1000.0)], [(1, 10, 4.0), (2, 10, 1.0)])
    assert found.mfu == pytest.approx(2000 / (4.0 * 500 + 1.0 * 1000))
    assert found.peak_flops == 1000


def test_steps_of_a_launch_that_was_not_measured_are_left_out() -> None:
    found = arithmetic([model(2, 100.0, 500.0)], [(1, 99, 1.0), (2, 10, 4.0)])
    assert found.flops_per_second == 250


def test_what_was_not_measured_is_not_known() -> None:
    assert arithmetic([], [(1, 10, 4.0)]) == Arithmetic()
    assert arithmetic([model(1, 100.0, None)], [(1, 10, 4.0)]).mfu is None
    assert arithmetic([model(1, 100.0, 500.0)], []).flops_per_second is None
    assert arithmetic([model(1, None, 500.0)], [(1, 10, 4.0)]).flops_per_second is None


def test_more_than_the_peak_means_that_the_peak_is_wrong() -> None:
    found = arithmetic([model(1, 100.0, 50.0)], [(1, 10, 4.0)])
    assert found.mfu is None
    assert "peak is not known" in found.text()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 "), (999.4, "999 "), (1000, "1 k"), (46_100_000, "46.1 M"), (168.4e9, "168 G"), (2e18, "2e+03 P")],
)
def test_large_numbers_are_short(value: float, text: str) -> None:
    assert metric(value) == text


def test_a_person_reads_rate_share_and_what_a_word_takes() -> None:
    text = Arithmetic(7_569_408, 46.1e6, 111e9, 168e9, 0.66).text()
    assert text == "111 GFLOP/s (66% of the workers' measured peak, 168 GFLOP/s); 46.1 MFLOP per target word"
