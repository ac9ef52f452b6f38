"""The best evaluation is decided by the score, then by the loss, then by the earlier step."""

import itertools
import math

import pytest

from lockstep.run.best import Evaluation, find_best

LOW, HIGH = 10.0, 20.0


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (Evaluation(9, HIGH, 5.0), Evaluation(1, LOW, 1.0)),
        (Evaluation(9, HIGH, 1.0), Evaluation(1, HIGH, 1.5)),
        (Evaluation(1, HIGH, 1.0), Evaluation(9, HIGH, 1.0)),
        (Evaluation(9, HIGH, 1.0), Evaluation(1, HIGH, None)),
        (Evaluation(9, HIGH, 1.0), Evaluation(1, HIGH, math.nan)),
        (Evaluation(9, HIGH, 1.0), Evaluation(1, HIGH, math.inf)),
        (Evaluation(1, HIGH, None), Evaluation(9, HIGH, None)),
        (Evaluation(9, LOW, None), Evaluation(1, math.nan, 1.0)),
        (Evaluation(9, LOW, None), Evaluation(1, math.inf, 1.0)),
    ],
)
def test_one_of_two_evaluations_is_better(better: Evaluation, worse: Evaluation) -> None:
    assert better.is_better_than(worse, higher_is_better=True)
    assert not worse.is_better_than(better, higher_is_better=True)
    assert better.has_better_score_than(worse, higher_is_better=True) == (better.score != worse.score)


def test_a_lower_score_is_better_where_the_metric_says_so() -> None:
    low, high = Evaluation(9, LOW, 5.0), Evaluation(1, HIGH, 1.0)
    assert low.is_better_than(high, higher_is_better=False)
    assert not low.is_better_than(high, higher_is_better=True)


def test_an_evaluation_is_not_better_than_itself() -> None:
    for evaluation in (Evaluation(1, HIGH, 1.0), Evaluation(1, HIGH), Evaluation(1, math.nan)):
        assert not evaluation.is_better_than(evaluation, higher_is_better=True)


def test_the_best_does_not_depend_on_the_order() -> None:
    scores, losses = (10.0, 20.0, 20.0, 19.0, 18.0), (5.0, 4.0, 3.0, 2.0, 1.0)
    evaluations = [Evaluation(*one) for one in zip(range(1, 6), scores, losses, strict=True)]
    for order in itertools.permutations(evaluations):
        assert find_best(order, higher_is_better=True) == evaluations[2]
        assert find_best(order, higher_is_better=False) == evaluations[0]
    assert find_best([], higher_is_better=True) is None
