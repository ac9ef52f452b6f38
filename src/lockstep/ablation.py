"""Runs that leave something out, to show what it costs: LOCKSTEP_WITHOUT=communication, or =input (the first few batches
are used again and again), or =nothing, to compare with.

Such a run measures time and nothing else: what it trains is worthless, so it evaluates nothing and saves nothing.
"""

import os

from lockstep.errors import LockstepError

KNOWN = ("nothing", "communication", "input")


def disabled() -> list[str]:
    """What this process was told to do without."""
    names = [name for name in os.environ.get("LOCKSTEP_WITHOUT", "").split(",") if name]
    for name in names:
        if name not in KNOWN:
            raise LockstepError(f"LOCKSTEP_WITHOUT={name} is not known.", f"Known: {', '.join(KNOWN)}.", code=2)
    return names
