"""The formulas of the learning-rate schedules.

They are written here a second time on purpose, apart from the trainer: the report checks the journal against them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pydantic import JsonValue

from lockstep.explain.formatting import compact, count, plural, share
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column

DEVIATION, ROUNDING = 1e-4, 1e-6
"""Shares of the peak. The journal stores seven digits: a smaller difference than ROUNDING is rounding, a larger one than
DEVIATION means another formula."""

NUMBERS = ("peak", "factor", "warmup", "floor")
"""Settings of every schedule."""

TO_THE_END = ("linear", "cosine")
"""Schedules that decay until the last step of the run."""


@dataclass(frozen=True)
class ScheduleFormula:
    """A schedule with all that its formula needs."""

    name: str
    peak: float
    factor: float
    warmup: int
    floor: float
    steps: int  # of the run, where the schedule depends on them
    width: int
    drops: tuple[int, ...] = ()
    drop: float = 1.0

    @classmethod
    def from_settings(cls, settings: Mapping[str, JsonValue], width: int | None = None) -> "ScheduleFormula | None":
        """Reads the settings by their dotted names; `width` is that of the model, where the journal has it. Returns None
        when a setting is missing or is not a number."""
        try:
            name = str(settings["schedule.name"])
            peak, factor, warmup, floor = (_to_float(settings[f"schedule.{key}"]) for key in NUMBERS)
            steps = int(_to_float(settings["train.steps"])) if name in TO_THE_END else 0
            own_width = int(_to_float(width or settings.get("model.width") or 1))
            drops = settings.get("schedule.drops")
            listed = tuple(int(_to_float(step)) for step in drops) if isinstance(drops, list) else ()
            drop = _to_float(settings.get("schedule.drop") or 1.0)
        except (KeyError, ValueError):
            return None
        return cls(name, peak, factor, int(warmup), floor, steps, own_width, listed, drop)

    def at(self, step: Column) -> Column:
        """Returns the learning rate of each step."""
        warmup = max(self.warmup, 1)
        if self.name == "noam":
            return np.asarray(self.factor * self.width**-0.5 * np.minimum(step**-0.5, step * warmup**-1.5))
        rise = self.peak * step / warmup
        after: Column
        if self.name == "constant":
            after = np.full(len(step), self.peak)
        elif self.name == "stairs":
            after = np.full(len(step), self.peak)
            for drop in self.drops:
                after[step > drop] *= self.drop
        elif self.name == "inverse_sqrt":
            after = self.peak * np.sqrt(warmup / step)
        else:
            done = np.clip((step - self.warmup) / max(1, self.steps - self.warmup), 0.0, 1.0)
            fall = 1.0 - done if self.name == "linear" else (1.0 + np.cos(math.pi * done)) / 2.0
            after = self.peak * (self.floor + (1.0 - self.floor) * fall)
        return np.where(step <= self.warmup, rise, after)

    @property
    def highest(self) -> float:
        return float(self.at(np.array([float(max(self.warmup, 1))]))[0])

    @property
    def _ends_in_warmup(self) -> bool:
        """Whether a schedule that would decay until the last step has no step left for it."""
        return self.name in TO_THE_END and 0 < self.steps <= self.warmup

    @property
    def _drops_text(self) -> str:
        return ", ".join(count(step) for step in self.drops) or "none"

    @property
    def formula(self) -> str:
        warmup, peak = max(self.warmup, 1), compact(self.peak)
        if self._ends_in_warmup:
            return f"{peak} * step / {warmup}"
        if self.name == "noam":
            return f"{compact(self.factor)} * {self.width}^-0.5 * min(step^-0.5, step * {warmup}^-1.5)"
        falls = {
            "inverse_sqrt": f"sqrt({warmup} / step)",
            "constant": "1",
            "stairs": f"{compact(self.drop)} to the power of the number of drops ({self._drops_text}) before the step",
            "linear": f"line from 1 to {compact(self.floor)} at {self.steps}",
            "cosine": f"half a cosine from 1 to {compact(self.floor)} at {self.steps}",
        }
        fall = falls.get(self.name, self.name)
        return f"{peak} * min(step / {warmup}, {fall})" if self.warmup else f"{peak} * {fall}"

    def describe(self) -> str:
        """Returns the curve in a sentence."""
        rise = (
            f"It rises linearly during a warm-up of {plural(self.warmup, 'step')} to its peak of {compact(self.highest)}"
            if self.warmup
            else f"It starts at its peak of {compact(self.highest)}, without a warm-up"
        )
        if self._ends_in_warmup:
            reached = "with the warm-up" if self.steps == self.warmup else "before the warm-up does"
            return f"{rise}, but the run ends at step {count(self.steps)}, {reached}: the rate never decays."
        end = "zero" if not self.floor else f"{share(self.floor)} of the peak"
        root = "and then decays with the inverse square root of the step: half the rate at four times the steps"
        fall = {
            "noam": root,
            "inverse_sqrt": root,
            "constant": "and stays there",
            "stairs": f"and is multiplied by {compact(self.drop)} after each of these steps: {self._drops_text}",
            "linear": f"and then decays linearly to {end} at step {count(self.steps)}",
            "cosine": f"and then decays along half a cosine to {end} at step {count(self.steps)}",
        }.get(self.name, "")
        return f"{rise}, {fall}."


def _to_float(value: JsonValue) -> float:
    if not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a number.")
    return float(value)


def list_schedules(record: Record) -> dict[int, ScheduleFormula]:
    """Returns the schedule of every launch by its attempt."""
    schedules = {}
    for launch in record.launches:
        width = launch.facts.get("width")
        schedule = ScheduleFormula.from_settings(launch.settings, width if isinstance(width, int) else None)
        if schedule is not None:
            schedules[launch.attempt] = schedule
    return schedules


def expected_rates(record: Record, schedules: Mapping[int, ScheduleFormula]) -> Column:
    """Returns the formula's rate of every step that stands, by the schedule of the launch that took it; NaN where that
    launch has none."""
    steps = record.primary.steps
    rates = np.full(len(steps), math.nan)
    for attempt, schedule in schedules.items():
        own = steps.attempt == attempt
        if own.any():
            rates[own] = schedule.at(steps.step[own])
    return rates
