"""Curves through evaluations."""

from collections.abc import Callable

import numpy as np
import pytest

from lockstep.explain.measures.curves import Column, Estimate, estimate_scatter, fit_curve, fit_slope


def make_evaluations(
    law: Callable[[Column], Column], last: float, count: int, scatter: float, seed: int
) -> tuple[Column, Column]:
    steps = np.linspace(last / count, last, count)
    random = np.random.default_rng(seed)
    return steps, law(steps) + scatter * random.standard_normal(count)


def test_the_parameters_of_a_power_law_are_recovered() -> None:
    steps, values = make_evaluations(lambda s: 1.2 + 30 * s**-0.5, 20_000, 20, 0.0, 0)
    curve = fit_curve(steps, values)
    assert curve is not None
    assert curve.power == pytest.approx(0.5, rel=0.02)
    assert curve.limit == pytest.approx(1.2, rel=0.02)
    assert curve.predict_change().value == pytest.approx(30 * (40_000**-0.5 - 20_000**-0.5), rel=0.02)


@pytest.mark.parametrize("count", [4, 8, 20])
def test_the_interval_contains_the_true_value_about_as_often_as_it_claims(count: int) -> None:
    """It claims 80 %. With few evaluations and a robust fit it is somewhat less."""
    truth, hits = 30 * (40_000**-0.5 - 20_000**-0.5), 0
    for seed in range(40):
        curve = fit_curve(*make_evaluations(lambda s: 1.2 + 30 * s**-0.5, 20_000, count, 0.005, seed))
        assert curve is not None
        hits += curve.predict_change().low <= truth <= curve.predict_change().high
    assert 0.5 <= hits / 40 <= 1.0


def test_one_outlier_does_not_change_the_curve() -> None:
    steps, values = make_evaluations(lambda s: 1.2 + 30 * s**-0.5, 20_000, 20, 0.002, 1)
    spoiled = values.copy()
    spoiled[12] += 2.0
    clean, robust = fit_curve(steps, values), fit_curve(steps, spoiled)
    assert clean is not None
    assert robust is not None
    assert robust.predict_change().value == pytest.approx(clean.predict_change().value, rel=0.15)


def test_the_limit_stays_where_a_score_can_be() -> None:
    steps = np.array([50.0, 100.0, 150.0, 200.0, 250.0, 300.0])
    falling, rising = (
        fit_curve(steps, np.array([5.7, 4.6, 3.0, 2.1, 1.6, 1.5])),
        fit_curve(steps, steps / 4, 0.0, 100.0),
    )
    assert falling is not None
    assert rising is not None
    assert (falling.draws[:, 0] >= 0).all()
    assert (rising.draws[:, 0] <= 100).all()
    assert falling.at(np.array([600.0]))[0] > 0


def test_three_evaluations_make_no_curve() -> None:
    assert fit_curve(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.5])) is None
    assert fit_curve(np.array([]), np.array([])) is None


def test_the_slope_is_the_change_per_doubling() -> None:
    steps = np.array([100.0, 200.0, 400.0, 800.0])
    slope = fit_slope(steps, 5.0 - 0.25 * np.log2(steps))
    assert slope is not None
    assert (slope.value, slope.low, slope.high) == pytest.approx((-0.25, -0.25, -0.25))
    assert fit_slope(steps[:2], steps[:2]) is None


def test_a_constant_score_has_no_slope() -> None:
    assert fit_slope(np.array([20.0, 40.0, 60.0]), np.full(3, 99.9)) == Estimate(0.0, 0.0, 0.0)


def test_many_evaluations_are_quick_and_give_the_same_curve() -> None:
    steps, values = make_evaluations(lambda s: 1.2 + 30 * s**-0.5, 20_000, 5000, 0.005, 2)
    curve = fit_curve(steps, values)
    assert curve is not None
    assert curve.predict_change().value == pytest.approx(-0.062, abs=0.01)


def test_a_smooth_curve_has_no_scatter() -> None:
    steps = np.linspace(1, 2, 40)
    assert estimate_scatter(steps**2) < 0.002
    scattered = estimate_scatter(steps**2 + 0.1 * np.random.default_rng(0).standard_normal(40))
    assert scattered == pytest.approx(0.1, rel=0.5)
