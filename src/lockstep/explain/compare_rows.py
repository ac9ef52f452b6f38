"""The comparison of runs as rows of text, for the terminal and the page: a name, then a value for each run."""

from collections.abc import Callable
from typing import TypeVar

from pydantic import JsonValue

from lockstep.explain.compare_runs import Difference, RunComparison
from lockstep.explain.formatting import flops
from lockstep.watch.eta import format_duration

Row = tuple[str, ...]
Value = TypeVar("Value")


def list_differences(differences: list[Difference]) -> list[Row]:
    return [(one.what, *(_format_setting(value) for value in one.values)) for one in differences]


def list_figures(comparison: RunComparison) -> list[Row]:
    sides = [side.summary for side in comparison.sides]
    unit = " or ".join(dict.fromkeys(one.unit for one in sides))
    rows: list[Row] = [
        ("state", *(f"{one.state} at step {one.step:,}" for one in sides)),
        ("wall time of training", *(_format_duration(side.seconds) for side in comparison.sides)),
        (f"{unit} learned from", *(f"{side.words:,.0f}" for side in comparison.sides)),
        ("time per step", *(_format_known(one.seconds_per_step, lambda s: f"{s * 1000:,.1f} ms") for one in sides)),
    ]
    for phase in dict.fromkeys(name for one in sides for name in one.phase_shares):
        shares = [one.phase_shares.get(phase, 0.0) for one in sides]
        times = [share * (one.seconds_per_step or 0.0) for share, one in zip(shares, sides, strict=True)]
        texts = (f"{time * 1000:,.1f} ms {share:4.0%}" for time, share in zip(times, shares, strict=True))
        rows.append((f"  {phase}", *texts))
    rows += [
        (f"{unit} per second", *(_format_known(one.words_per_second, lambda n: f"{n:,.0f}") for one in sides)),
        ("arithmetic", *(_format_known(one.arithmetic.flops_per_second, flops) for one in sides)),
        ("share of the peak (MFU)", *(_format_known(one.arithmetic.mfu, lambda n: f"{n:.0%}") for one in sides)),
        (
            "memory of worker 0",
            *(_format_known(side.resident, lambda n: f"{n / 1e6:,.0f} MB") for side in comparison.sides),
        ),
        ("training loss at the end", *(_format_known(one.loss, lambda n: f"{n:.3f}") for one in sides)),
        (
            f"best {comparison.metric}{' (on the test set)' if any(one.on_test for one in sides) else ''}",
            *(_format_known(one.best_score, lambda n: f"{n:.2f}") for one in sides),
        ),
    ]
    if any(one.others_share is not None for one in sides):
        others = (_format_known(one.others_share, lambda n: f"{n:.0%}") for one in sides)
        rows.append(("cores used by other programs", *others))
    return rows + _list_reached(comparison)


def _list_reached(comparison: RunComparison) -> list[Row]:
    """Returns when each run reached the best score that all runs reached."""
    if comparison.target is None:
        return []
    steps, words, seconds = zip(*(place or (None, None, None) for place in comparison.reached), strict=True)
    return [
        (
            f"{comparison.metric} {comparison.target:.2f} at step",
            *(_format_known(number, lambda n: f"{n:,.0f}") for number in steps),
        ),
        (
            f"  after {comparison.sides[0].summary.unit}",
            *(_format_known(number, lambda n: f"{n:,.0f}") for number in words),
        ),
        ("  after", *(_format_known(number, _format_duration) for number in seconds)),
    ]


def _format_known(value: Value | None, format_value: Callable[[Value], str]) -> str:
    return "-" if value is None else format_value(value)


def _format_duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(seconds)


def _format_setting(value: JsonValue) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return "-" if value is None else str(value)
