"""Formats numbers for people."""

import math
import time

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def number(value: float, digits: int = 3) -> str:
    """Formats about `digits` significant digits, with separators: 0.0123, 1.23, 12,300."""
    if not math.isfinite(value):
        return "not known"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - size)}f}"


def precise(value: float) -> str:
    """Formats four significant digits, where three would hide the change."""
    return number(value, 4)


def count(value: float) -> str:
    return f"{round(value):,}"


def share(value: float) -> str:
    """Formats 0.1234 as '12.3 %', and shares that would round to zero as 'less than 0.1 %'."""
    percent = 100 * value
    if percent and abs(percent) < 0.1:
        return "less than 0.1 %" if percent > 0 else "more than -0.1 %"
    return f"{percent:.1f} %" if abs(percent) < 99.95 else f"{percent:,.0f} %"


def seconds(value: float) -> str:
    """Formats short times with three digits, long ones in minutes, hours or days."""
    if value < 0:
        return f"-{seconds(-value)}"
    if value < 1e-3:
        return f"{number(value * 1e6)} µs"
    if value < 1.0:
        return f"{number(value * 1e3)} ms"
    if value < 100.0:
        return f"{number(value)} s"
    if value < HOUR:
        rounded = round(value)
        return f"{rounded // 60} min {rounded % 60} s"
    minutes = round(value / MINUTE)
    if value < 2 * DAY:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def milliseconds(value: float) -> str:
    return f"{number(value * 1e3, 4)} ms"


def megabytes(value: float) -> str:
    return f"{number(value / 1e6)} MB" if value >= 1e5 or not value else f"{number(value / 1e3)} kB"


def compact(value: float) -> str:
    """Formats up to four digits without trailing zeros: 0.003, 1e-05."""
    return f"{value:.4g}"


def si_number(value: float) -> str:
    """Formats 46_100_000 as '46.1 M'. A unit is to follow."""
    prefixes = ["", "k", "M", "G", "T", "P"]
    while value >= 999.5 and len(prefixes) > 1:
        value, prefixes = value / 1000, prefixes[1:]
    return f"{number(value)} {prefixes[0]}"


def bits(value: float) -> str:
    """Formats a rate in bits per second."""
    return f"{si_number(value)}bit/s"


def flops(value: float) -> str:
    return f"{si_number(value)}FLOP/s"


def timestamp(value: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(value))


def plural(how_many: float, noun: str) -> str:
    """Formats a number with its noun: 1 step, 2 steps."""
    return f"{count(how_many)} {noun}{'' if how_many == 1 else 's'}"


def state_count(how_many: float, noun: str) -> str:
    """Returns 'there is 1 step' or 'there are 2 steps'."""
    return f"there {'is' if how_many == 1 else 'are'} {plural(how_many, noun)}"


def score_title(metric: str) -> str:
    """Returns the name of a score as its authors write it."""
    return {"sacrebleu": "sacreBLEU"}.get(metric, metric)
