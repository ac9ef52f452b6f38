"""Learning rates as pure functions of the step, so that a resumed run needs no schedule state."""

import math

from lockstep.train.train_settings import ScheduleSettings


def learning_rate(settings: ScheduleSettings, step: int, steps: int, width: int) -> float:
    """The rate of update number `step` (the first is 1) in a run of `steps`, for a model of `width`."""
    warmup, peak = settings.warmup, settings.peak
    if settings.name == "noam":
        rise = step * max(warmup, 1) ** -1.5
        return settings.factor * width**-0.5 * min(step**-0.5, rise)
    if step <= warmup:
        return peak * step / warmup
    if settings.name == "constant":
        return peak
    if settings.name == "stairs":
        return peak * settings.drop ** sum(step > drop for drop in settings.drops)
    if settings.name == "inverse_sqrt":
        return peak * math.sqrt(max(warmup, 1) / step)
    done = min(1.0, (step - warmup) / max(1, steps - warmup))
    fall = 1.0 - done if settings.name == "linear" else (1.0 + math.cos(math.pi * done)) / 2.0
    return peak * (settings.floor + (1.0 - settings.floor) * fall)
