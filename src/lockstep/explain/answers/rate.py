"""Question 6: the learning rate, drawn over its formula and described in words.

The formulas are written here a second time on purpose: the journal is checked against them.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.explain.answer import Answer, Figure, Tone, told
from lockstep.explain.formatting import count, plain, plural, share
from lockstep.explain.pages import charts
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column
from lockstep.settings import flat

QUESTION = "What does the learning-rate curve show?"
DEVIATION, ROUNDING = 1e-4, 1e-6
"""The journal keeps seven digits: less than the second is rounding, more than the first follows another formula."""

TO_THE_END = ("linear", "cosine")
"""Schedules that fall until the last step of the run."""


@dataclass(frozen=True)
class Schedule:
    """A schedule with all that its formula needs."""

    name: str
    peak: float
    factor: float
    warmup: int
    floor: float
    steps: int  # where the schedule depends on them
    width: int
    drops: tuple[int, ...] = ()
    drop: float = 1.0

    @classmethod
    def of(cls, settings: dict[str, Any], width: Any = None) -> "Schedule | None":
        """From settings by dotted name, and the width that the model told; None when they are not there."""
        try:
            name, peak, factor = (settings[f"schedule.{key}"] for key in ("name", "peak", "factor"))
            warmup, floor = int(settings["schedule.warmup"]), float(settings["schedule.floor"])
            steps = int(settings["train.steps"]) if name in TO_THE_END else 0
            width = int(width or settings.get("model.width") or 1)
            drops = tuple(int(step) for step in settings.get("schedule.drops") or ())
            drop = float(settings.get("schedule.drop") or 1.0)
            return cls(str(name), float(peak), float(factor), warmup, floor, steps, width, drops, drop)
        except (KeyError, TypeError, ValueError):
            return None

    def at(self, step: Column) -> Column:
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
    def _drops(self) -> str:
        return ", ".join(count(step) for step in self.drops) or "none"

    @property
    def formula(self) -> str:
        warmup, peak = max(self.warmup, 1), plain(self.peak)
        if self.name == "noam":
            return f"{plain(self.factor)} * {self.width}^-0.5 * min(step^-0.5, step * {warmup}^-1.5)"
        falls = {
            "inverse_sqrt": f"sqrt({warmup} / step)",
            "constant": "1",
            "stairs": f"{plain(self.drop)} to the power of the number of drops ({self._drops}) before the step",
            "linear": f"line from 1 to {plain(self.floor)} at {self.steps}",
            "cosine": f"half a cosine from 1 to {plain(self.floor)} at {self.steps}",
        }
        fall = falls.get(self.name, self.name)
        return f"{peak} * min(step / {warmup}, {fall})" if self.warmup else f"{peak} * {fall}"

    def words(self) -> str:
        rise = (
            f"It rises linearly during a warm-up of {plural(self.warmup, 'step')} to its peak of {plain(self.highest)}"
            if self.warmup
            else f"It starts at its peak of {plain(self.highest)}, without a warm-up"
        )
        end = "zero" if not self.floor else f"{share(self.floor)} of the peak"
        root = "and then decays with the inverse square root of the step: half the rate at four times the steps"
        fall = {
            "noam": root,
            "inverse_sqrt": root,
            "constant": "and stays there",
            "stairs": f"and is multiplied by {plain(self.drop)} after each of these steps: {self._drops}",
            "linear": f"and then decays linearly to {end} at step {count(self.steps)}",
            "cosine": f"and then decays along half a cosine to {end} at step {count(self.steps)}",
        }.get(self.name, "")
        return f"{rise}, {fall}."


def schedules(record: Record) -> dict[int, Schedule]:
    """The schedule of every attempt."""
    known = {launch.attempt: Schedule.of(launch.settings, launch.facts.get("width")) for launch in record.launches}
    return {attempt: schedule for attempt, schedule in known.items() if schedule is not None}


def expected(record: Record, known: dict[int, Schedule]) -> Column:
    """The formula's rate of every step that stands, by the schedule of the launch that took it."""
    steps = record.primary.steps
    values = np.full(len(steps), math.nan)
    for attempt, schedule in known.items():
        own = steps.attempt == attempt
        if own.any():
            values[own] = schedule.at(steps.step[own])
    return values


def answer(record: Record) -> Answer:
    steps, known = record.primary.steps, schedules(record)
    schedule = known[max(known)] if known else Schedule.of(flat(record.config))
    if schedule is None:
        return Answer(6, QUESTION, "not known", "The schedule is not in config.yaml.", "unknown")
    figures = [
        Figure("formula", schedule.formula, "schedule in config.yaml"),
        told("warm-up, steps", schedule.warmup, count, "schedule.warmup"),
        told("peak", schedule.highest, plain, "the formula at the end of the warm-up"),
    ]
    short = f"{schedule.name}, peak {plain(schedule.highest)}"
    if not len(steps) or not np.isfinite(steps.rate).any():
        return Answer(6, QUESTION, short, schedule.words(), "plain", figures)
    wanted = expected(record, known)
    both = np.isfinite(wanted) & np.isfinite(steps.rate)
    away = float(np.abs(steps.rate - wanted)[both].max() / schedule.highest) if both.any() else math.nan
    last, top = float(steps.rate[-1]), int(np.nanargmax(steps.rate))
    how = f"largest distance at {count(both.sum())} steps of the journal, as a share of the peak"
    figures += [
        told("highest rate used", float(steps.rate[top]), plain, f"journal, step {count(steps.step[top])}"),
        told("rate at the last step", last, plain, f"journal, step {count(steps.step[-1])}"),
        told("furthest from the formula", away if away > ROUNDING else 0.0, share, how),
    ]
    text = f"{schedule.words()} At the last step it was {plain(last)}, {share(last / schedule.highest)} of the peak."
    follows = not away > DEVIATION
    if follows:
        text += " The journal follows the formula at every step."
    else:
        text += f" The journal deviates from the formula by up to {share(away)} of the peak."
    if record.reached < schedule.warmup:
        text += f" The run is still in the warm-up, which takes {count(schedule.warmup)} steps."
    if len(set(known.values())) > 1:
        text += (
            " The schedule was changed between launches; every step is compared with the schedule of its own launch."
        )
    tone: Tone = "plain" if follows else "mind"
    return Answer(6, QUESTION, short, text, tone, figures, [_chart(record, schedule, wanted)])


def _chart(record: Record, schedule: Schedule, wanted: Column) -> charts.Chart:
    steps = record.primary.steps
    used = charts.Line("used", *charts.thin(steps.step, steps.rate), "--blue", width=4)
    formula = charts.Line("formula", *charts.thin(steps.step, wanted), "--orange", "dash")
    marks = [(float(schedule.warmup), "end of warm-up")] if 0 < schedule.warmup <= steps.step[-1] else []
    title = "Learning rate, used and by formula"
    both = [used, formula] if len(formula.x) else [used]
    return charts.lines("learning-rate", title, schedule.words(), both, "step", "learning rate", marks=marks, zero=True)
