"""A study says how long it should take, and leaves out what does not fit."""

from dataclasses import replace

import pytest

from lockstep.lab.study.cells import Matrix
from lockstep.lab.study.expected_time import Probe, describe_range, fit_into, is_part_of

PROBE = Probe(start_seconds=4.0, step_seconds=0.1, batch=500)
MATRIX = Matrix((1, 2, 4), ("allreduce", "sharded"), ("none", "1gbit"), (500, 1000), "words", 20, 5, 3, 1)


def test_the_range_grows_with_rounds_steps_and_batches() -> None:
    low, high = PROBE.estimate_matrix(MATRIX)
    cells = len(MATRIX.list_cells())
    assert 3 * cells * (4.0 + 25 * 0.1) < low < high
    for larger in (replace(MATRIX, rounds=4), replace(MATRIX, steps=40), replace(MATRIX, batches=(500, 2000))):
        assert PROBE.estimate_matrix(larger) > (low, high)
    assert describe_range(61, 150) == "1 to 2 minutes"
    assert describe_range(20, 50) == "20 to 50 seconds"


@pytest.mark.parametrize("minutes", [1, 3, 10, 30, 60, 120])
def test_what_is_planned_fits_and_what_was_left_out_is_said(minutes: int) -> None:
    matrix, left_out = fit_into(MATRIX, PROBE, 60 * minutes)
    smallest, _ = fit_into(MATRIX, PROBE, 0.0)
    assert PROBE.estimate_middle(matrix) <= 60 * minutes or matrix == smallest
    assert is_part_of(matrix, MATRIX), "the same command continues it"
    names = [text.partition(":")[0] for text in left_out]
    assert len(names) == len(set(names)), "each kind is named once, as it is at the end"
    for name in ("rounds", "steps", "batches", "links", "strategies", "workers"):
        assert (getattr(matrix, name) != getattr(MATRIX, name)) == (name in names)


def test_a_study_that_fits_is_not_changed() -> None:
    assert fit_into(MATRIX, PROBE, 1e9) == (MATRIX, [])


def test_a_study_of_something_else_is_not_a_part() -> None:
    for other in (replace(MATRIX, strategies=("server",)), replace(MATRIX, warmup=9), replace(MATRIX, steps=30)):
        assert not is_part_of(other, MATRIX)


def test_rounds_go_first_and_the_steps_of_local_stay_a_multiple() -> None:
    matrix, left_out = fit_into(replace(MATRIX, strategies=("local:every=10",)), PROBE, 1.0)
    assert matrix.steps == 20
    assert left_out[0] == "rounds: only 1"


@pytest.mark.parametrize(("workers", "kept"), [((1, 2), (1, 2)), ((1, 2, 4), (1, 2)), ((2, 4), (2,)), ((1,), (1,))])
def test_one_worker_and_several_always_stay(workers: tuple[int, ...], kept: tuple[int, ...]) -> None:
    matrix, _ = fit_into(replace(MATRIX, workers=workers), PROBE, 1.0)
    assert matrix.workers == kept
    assert (matrix.rounds, matrix.steps, matrix.strategies) == (1, 5, ("allreduce",))
