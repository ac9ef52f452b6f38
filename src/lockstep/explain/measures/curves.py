"""Curves through evaluations: a power law of the step with its uncertainty, and the slope of the last evaluations."""

import math
from dataclasses import dataclass

import numpy as np

from lockstep.explain.reading.steps import Column

POWERS = np.geomspace(0.05, 6.0, 24)
DRAWS = 200
FEWEST = 4
"""The smallest number of evaluations for a curve: one for each of its three parameters and one for the scatter."""
MOST = 40
"""Of more evaluations, evenly spaced ones are used, which saves time."""
STUDENT = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372)
"""Half-widths of an 80 % interval in standard errors, for 1, 2, ... degrees of freedom."""
STUDENT_MANY = 1.29


@dataclass(frozen=True)
class Estimate:
    """A value with its 80 % interval."""

    value: float
    low: float
    high: float

    def scale(self, factor: float) -> "Estimate":
        ends = sorted((self.low * factor, self.high * factor))
        return Estimate(self.value * factor, ends[0], ends[1])


@dataclass(frozen=True)
class Curve:
    """limit + drop * (step / last) ** -power, and bootstrap draws of the three parameters."""

    last: float
    limit: float
    drop: float
    power: float
    draws: Column  # [draws, (limit, drop, power)]
    scatter: float  # standard deviation of the residuals, estimated from their median

    def at(self, steps: Column) -> Column:
        """Returns the value of the curve at each step."""
        return self.limit + self.drop * (np.asarray(steps) / self.last) ** -self.power

    def interval_at(self, steps: Column) -> tuple[Column, Column]:
        """Returns the low and high ends of the 80 % interval at each step."""
        ratio = (np.asarray(steps) / self.last)[None, :]
        values = self.draws[:, :1] + self.draws[:, 1:2] * ratio ** -self.draws[:, 2:]
        low, high = np.quantile(values, (0.1, 0.9), axis=0)
        return low, high

    def predict_change(self, factor: float = 2.0) -> Estimate:
        """Returns how much the value changes when the run takes `factor` times its steps."""
        falls = self.draws[:, 1] * (factor ** -self.draws[:, 2] - 1.0)
        low, high = np.quantile(falls, (0.1, 0.9))
        return Estimate(float(self.drop * (factor**-self.power - 1.0)), float(low), float(high))


def fit_curve(steps: Column, values: Column, least: float = 0.0, most: float = math.inf) -> Curve | None:
    """Fits a curve by robust least squares on a grid of powers, with a limit between `least` and `most`. Returns None for
    fewer than FEWEST evaluations.

    Only the last three doublings of the steps are used, and later evaluations have a larger weight, because the curve
    extrapolates and the beginning of a training follows another law. The uncertainty comes from a wild bootstrap: each
    draw multiplies the residual of every evaluation by a random number, gives every evaluation a random weight, and fits
    the curve again.
    """
    steps, values = _select_late(steps, values)
    if len(steps) < FEWEST or steps[-1] <= 0:
        return None
    ratio = steps / steps[-1]
    limit, drop, power = (one[0] for one in _solve(ratio, values[None, :], ratio[None, :], (least, most)))
    fitted = limit + drop * ratio**-power
    residuals = values - fitted
    swell = np.sqrt(len(values) / max(1, len(values) - 3))
    random = np.random.default_rng(0)
    strength = random.standard_normal((DRAWS, len(values))) * swell
    weights = ratio * random.exponential(size=(DRAWS, len(values)))
    draws = np.stack(_solve(ratio, fitted + residuals * strength, weights, (least, most)), axis=1)
    scatter = float(1.4826 * np.median(np.abs(residuals)) * swell)
    return Curve(float(steps[-1]), float(limit), float(drop), float(power), draws, scatter)


def _select_late(steps: Column, values: Column) -> tuple[Column, Column]:
    """Returns the evaluations of the last three doublings of the steps, at most MOST of them."""
    late = np.flatnonzero(steps >= steps[-1] / 8) if len(steps) else np.array([], int)
    if len(late) <= FEWEST:
        late = np.arange(max(0, len(steps) - FEWEST - 1), len(steps))
    if len(late) > MOST:
        late = late[np.unique(np.linspace(0, len(late) - 1, MOST).astype(int))]
    return steps[late], values[late]


def _solve(ratio: Column, values: Column, own: Column, limits: tuple[float, float]) -> tuple[Column, Column, Column]:
    """Returns (limit, drop, power) of each row of `values` [rows, evaluations], by a coarse grid of powers and then a fine
    one. `own` are the weights of the evaluations, [1 or rows, evaluations]."""
    _, _, coarse = _find_best_power(ratio, values, own, limits, np.broadcast_to(POWERS, (len(values), len(POWERS))))
    near = coarse[:, None] * np.geomspace(POWERS[0] / POWERS[1], POWERS[1] / POWERS[0], 13)
    return _find_best_power(ratio, values, own, limits, near)


def _find_best_power(
    ratio: Column, values: Column, own: Column, limits: tuple[float, float], powers: Column
) -> tuple[Column, Column, Column]:
    """Returns limit, drop and power of the best of `powers` [rows, powers] for each row."""
    basis = ratio ** -powers[..., None]  # [rows, powers, evaluations]
    weights = np.broadcast_to(own[:, None, :], basis.shape)
    for _ in range(5):
        limit, drop = _fit_line(basis, values[:, None, :], weights, limits)  # [rows, powers]
        away = np.abs(values[:, None, :] - limit[..., None] - drop[..., None] * basis)
        size = 1.5 * np.median(away, axis=-1, keepdims=True) * 1.4826 + 1e-12
        weights = own[:, None, :] * np.minimum(1.0, size / np.maximum(away, 1e-12))  # Huber's
    cost = (weights * away**2).sum(-1) / weights.sum(-1)
    best = cost.argmin(1)
    rows = np.arange(len(values))
    return limit[rows, best], drop[rows, best], powers[rows, best]


def _fit_line(x: Column, y: Column, weights: Column, limits: tuple[float, float]) -> tuple[Column, Column]:
    """Fits a weighted straight line y = a + b x along the last axis, with `a` within the limits."""
    total = weights.sum(-1)
    mean_x, mean_y = (weights * x).sum(-1) / total, (weights * y).sum(-1) / total
    away = x - mean_x[..., None]
    spread = (weights * away**2).sum(-1)
    b = (weights * away * (y - mean_y[..., None])).sum(-1) / np.maximum(spread, 1e-12)
    a = np.clip(mean_y - b * mean_x, *limits)
    return a, (mean_y - a) / mean_x


def count_recent(evaluations: int) -> int:
    """Returns how many evaluations count as the last ones: a third, and at least three."""
    return max(3, -(-evaluations // 3))


def fit_slope(steps: Column, values: Column, count: int | None = None) -> Estimate | None:
    """Returns the change per doubling of the steps over the last `count` evaluations. By default those are the ones that
    `count_recent` counts. Returns None when there are fewer."""
    count = max(3, count or count_recent(len(steps)))
    if len(steps) < count:
        return None
    x, y = np.log2(np.maximum(steps[-count:], 1.0)), values[-count:]
    away = x - x.mean()
    if np.ptp(y) == 0:
        return Estimate(0.0, 0.0, 0.0)
    value = float((away * y).sum() / (away**2).sum())
    residuals = y - y.mean() - value * away
    freedom = count - 2
    error = float(np.sqrt((residuals**2).sum() / freedom / (away**2).sum()))
    half = (STUDENT[freedom - 1] if freedom <= len(STUDENT) else STUDENT_MANY) * error
    return Estimate(value, value - half, value + half)


def estimate_scatter(values: Column) -> float:
    """Returns the standard deviation of the noise between neighbours, from their second differences, which are almost zero
    for a smooth curve."""
    if len(values) < 4:
        return 0.0
    return float(1.4826 * np.median(np.abs(np.diff(values, 2))) / np.sqrt(6.0))
