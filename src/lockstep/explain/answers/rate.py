"""The learning rate: its curve over its formula, described in words."""

import math

import numpy as np

from lockstep.explain.answer import Answer, Chart, Figure, Tone, make_figure
from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import compact, count, plural, share
from lockstep.explain.measures.schedule_formula import (
    DEVIATION,
    ROUNDING,
    ScheduleFormula,
    expected_rates,
    list_schedules,
)
from lockstep.explain.pages import charts
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column
from lockstep.settings import flat

QUESTION = "What does the learning-rate curve show?"


def answer(evidence: Evidence) -> Answer:
    record = evidence.record
    steps, schedules = record.primary.steps, list_schedules(record)
    schedule = schedules[max(schedules)] if schedules else ScheduleFormula.from_settings(flat(record.config))
    if schedule is None:
        return Answer(QUESTION, "not known", "The schedule is not in config.yaml.", "unknown")
    figures = [
        Figure("formula", schedule.formula, "schedule in config.yaml"),
        make_figure("warm-up, steps", schedule.warmup, count, "schedule.warmup"),
        make_figure("peak", schedule.highest, compact, "the formula at the end of the warm-up"),
    ]
    short = f"{schedule.name}, peak {compact(schedule.highest)}"
    if not len(steps) or not np.isfinite(steps.rate).any():
        return Answer(QUESTION, short, schedule.describe(), "plain", figures)
    expected = expected_rates(record, schedules)
    known = np.isfinite(expected) & np.isfinite(steps.rate)
    deviation = float(np.abs(steps.rate - expected)[known].max() / schedule.highest) if known.any() else math.nan
    highest = int(np.nanargmax(steps.rate))
    how = f"largest distance at {count(known.sum())} steps of the journal, as a share of the peak"
    at_highest, at_last = (f"journal, step {count(steps.step[place])}" for place in (highest, -1))
    figures += [
        make_figure("highest rate used", float(steps.rate[highest]), compact, at_highest),
        make_figure("rate at the last step", float(steps.rate[-1]), compact, at_last),
        make_figure("furthest from the formula", deviation if deviation > ROUNDING else 0.0, share, how),
    ]
    text = _write_text(record, schedule, deviation, changed=len(set(schedules.values())) > 1)
    tone: Tone = "mind" if deviation > DEVIATION else "plain"
    return Answer(QUESTION, short, text, tone, figures, [_draw_rates(record, schedule, expected)])


def _write_text(record: Record, schedule: ScheduleFormula, deviation: float, changed: bool) -> str:
    last = float(record.primary.steps.rate[-1])
    at_last = f"At the last step it was {compact(last)}, {share(last / schedule.highest)} of the peak."
    text = f"{schedule.describe()} {at_last}"
    if deviation > DEVIATION:
        text += f" The journal deviates from the formula by up to {share(deviation)} of the peak."
    else:
        text += " The journal follows the formula at every step."
    goal = record.setting("train.steps")
    if isinstance(goal, int) and goal < schedule.warmup:
        text += (
            f" The warm-up of {count(schedule.warmup)} steps does not end within the {plural(goal, 'step')} of the run: "
            "the peak is never reached. A smaller schedule.warmup would let it learn faster."
        )
    elif record.last_step < schedule.warmup:
        text += f" The run is still in the warm-up, which takes {count(schedule.warmup)} steps."
    if changed:
        text += (
            " The schedule was changed between launches; every step is compared with the schedule of its own launch."
        )
    return text


def _draw_rates(record: Record, schedule: ScheduleFormula, expected: Column) -> Chart:
    steps = record.primary.steps
    used = charts.Line("used", *charts.thin(steps.step, steps.rate), "--blue", width=4)
    formula = charts.Line("formula", *charts.thin(steps.step, expected), "--orange", "dash")
    marks = [(float(schedule.warmup), "end of warm-up")] if 0 < schedule.warmup <= steps.step[-1] else []
    title, description = "Learning rate, used and by formula", schedule.describe()
    lines = [used, formula] if len(formula.x) else [used]
    return charts.draw_lines(
        "learning-rate", title, description, lines, "step", "learning rate", marks=marks, zero=True
    )
