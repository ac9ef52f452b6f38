"""The comparison as rows of text, for the terminal and for the page: a name, then a value for each run."""

from collections.abc import Callable
from typing import Any

from lockstep.explain.compare_runs import Difference, RunComparison
from lockstep.explain.formatting import flops
from lockstep.watch.console import format_duration

Row = tuple[str, ...]


def differences(found: list[Difference]) -> list[Row]:
    return [(one.what, *(_value(value) for value in one.values)) for one in found]


def figures(found: RunComparison) -> list[Row]:
    sides = [side.summary for side in found.sides]
    unit = " or ".join(dict.fromkeys(one.unit for one in sides))
    rows: list[Row] = [
        ("state", *(f"{one.state} at step {one.step:,}" for one in sides)),
        ("wall time of training", *(_duration(side.seconds) for side in found.sides)),
        (f"{unit} learned from", *(f"{side.words:,.0f}" for side in found.sides)),
        ("time per step", *(_known(one.seconds_per_step, lambda s: f"{s * 1000:,.1f} ms") for one in sides)),
    ]
    for phase in dict.fromkeys(name for one in sides for name in one.phase_shares):
        shares = [one.phase_shares.get(phase, 0.0) for one in sides]
        times = [share * (one.seconds_per_step or 0.0) for share, one in zip(shares, sides, strict=True)]
        texts = (f"{time * 1000:,.1f} ms {share:4.0%}" for time, share in zip(times, shares, strict=True))
        rows.append((f"  {phase}", *texts))
    rows += [
        (f"{unit} per second", *(_known(one.words_per_second, lambda n: f"{n:,.0f}") for one in sides)),
        ("arithmetic", *(_known(one.arithmetic.flops_per_second, flops) for one in sides)),
        ("share of the peak (MFU)", *(_known(one.arithmetic.mfu, lambda n: f"{n:.0%}") for one in sides)),
        ("memory of worker 0", *(_known(side.resident, lambda n: f"{n / 1e6:,.0f} MB") for side in found.sides)),
        ("training loss at the end", *(_known(one.loss, lambda n: f"{n:.3f}") for one in sides)),
        (
            f"best {found.metric}{' (on the test set)' if any(one.on_test for one in sides) else ''}",
            *(_known(one.best_score, lambda n: f"{n:.2f}") for one in sides),
        ),
    ]
    return rows + _reached(found)


def _reached(found: RunComparison) -> list[Row]:
    """When each run was as good as the one that got least far."""
    if found.target is None:
        return []
    steps, words, seconds = zip(*(place or (None, None, None) for place in found.reached), strict=True)
    return [
        (f"{found.metric} {found.target:.2f} at step", *(_known(number, lambda n: f"{n:,.0f}") for number in steps)),
        (f"  after {found.sides[0].summary.unit}", *(_known(number, lambda n: f"{n:,.0f}") for number in words)),
        ("  after", *(_known(number, _duration) for number in seconds)),
    ]


def _known(value: Any, text: Callable[[Any], str]) -> str:
    return "-" if value is None else text(value)


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(seconds)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return "-" if value is None else str(value)
