import math
from typing import Any

import pytest

from lockstep.train.schedule import learning_rate
from lockstep.train.train_settings import ScheduleSettings

STEPS, WARMUP, PEAK = 10_000, 400, 2e-3
AFTER = [401, 402, 1600, 5200, 9999, 10_000]


def rate(step: int, steps: int = STEPS, **settings: Any) -> float:
    return learning_rate(ScheduleSettings(**({"peak": PEAK, "warmup": WARMUP} | settings)), step, steps, 512)


@pytest.mark.parametrize("step", [1, 2, 100, 7999, 8000, 8001, 32_000, 100_000])
def test_noam_follows_the_papers_formula(step: int) -> None:
    expected = 2.0 * 512**-0.5 * min(step**-0.5, step * 8000**-1.5)
    assert rate(step, name="noam", warmup=8000, factor=2.0) == pytest.approx(expected, rel=1e-12)


def test_noam_shrinks_with_the_width_of_the_model() -> None:
    settings = ScheduleSettings(name="noam", warmup=100, factor=1.0)
    assert learning_rate(settings, 100, 1000, 256) == pytest.approx(256**-0.5 / 10)
    assert learning_rate(settings, 100, 1000, 1024) == pytest.approx(1024**-0.5 / 10)


def test_stairs_are_the_rates_of_the_resnet_paper() -> None:
    """0.1, divided by 10 at 32,000 and 48,000 iterations."""
    paper: dict[str, Any] = {"name": "stairs", "peak": 0.1, "warmup": 0, "drops": [32_000, 48_000]}
    expected = {1: 0.1, 32_000: 0.1, 32_001: 0.01, 48_000: 0.01, 48_001: 0.001, 64_000: 0.001}
    assert {step: rate(step, 64_000, **paper) for step in expected} == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["inverse_sqrt", "cosine", "linear", "stairs", "constant"])
@pytest.mark.parametrize("step", [1, 2, 199, 399, 400])
def test_the_rise_is_a_straight_line_to_the_peak(name: str, step: int) -> None:
    assert rate(step, name=name, floor=0.3) == pytest.approx(PEAK * step / WARMUP, rel=1e-12)


@pytest.mark.parametrize("step", [1, 100, 399])
def test_the_rise_of_noam_is_a_straight_line_too(step: int) -> None:
    assert rate(step, name="noam") == pytest.approx(rate(WARMUP, name="noam") * step / WARMUP, rel=1e-12)


@pytest.mark.parametrize("step", AFTER)
def test_inverse_sqrt_falls_with_the_root_of_the_step(step: int) -> None:
    assert rate(step, name="inverse_sqrt") == pytest.approx(PEAK * math.sqrt(WARMUP / step), rel=1e-12)


@pytest.mark.parametrize("step", AFTER)
@pytest.mark.parametrize("floor", [0.0, 0.1, 1.0])
def test_cosine_falls_along_half_a_wave(step: int, floor: float) -> None:
    wave = 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))
    assert rate(step, name="cosine", floor=floor) == pytest.approx(PEAK * (floor + (1 - floor) * wave), abs=1e-15)


@pytest.mark.parametrize("step", AFTER)
@pytest.mark.parametrize("floor", [0.0, 0.1, 1.0])
def test_linear_falls_in_a_straight_line(step: int, floor: float) -> None:
    left = (STEPS - step) / (STEPS - WARMUP)
    assert rate(step, name="linear", floor=floor) == pytest.approx(PEAK * (floor + (1 - floor) * left), abs=1e-15)


@pytest.mark.parametrize("step", AFTER)
def test_constant_stays_at_the_peak(step: int) -> None:
    assert rate(step, name="constant") == PEAK


@pytest.mark.parametrize("name", ["cosine", "linear"])
@pytest.mark.parametrize("floor", [0.0, 0.25])
def test_cosine_and_linear_end_at_the_floor_and_stay_there(name: str, floor: float) -> None:
    assert rate(STEPS, name=name, floor=floor) == pytest.approx(PEAK * floor, abs=1e-15)
    assert rate(STEPS + 5000, name=name, floor=floor) == pytest.approx(PEAK * floor, abs=1e-15)


@pytest.mark.parametrize("name", ["noam", "inverse_sqrt", "cosine", "linear", "constant"])
@pytest.mark.parametrize(("warmup", "steps"), [(0, 100), (0, 1), (100, 100), (500, 100), (99, 100)])
def test_every_rate_is_finite_and_not_negative_whatever_the_warm_up(name: str, warmup: int, steps: int) -> None:
    rates = [rate(step, steps, name=name, warmup=warmup) for step in range(1, steps + 1)]
    assert all(math.isfinite(r) and r >= 0 for r in rates)
    assert rates[0] > 0 or steps == 1
