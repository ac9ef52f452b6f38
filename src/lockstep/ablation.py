"""Ablation runs: a short training without communication or without input, to measure what that costs.

`LOCKSTEP_WITHOUT=communication` sends nothing. `LOCKSTEP_WITHOUT=input` reuses the first few batches. With `nothing` the
run is the baseline to compare with. Such a run measures time only: it evaluates nothing and saves nothing.
"""

from dataclasses import dataclass

from lockstep.errors import LockstepError
from lockstep.run import environment_variables

KNOWN = ("nothing", "communication", "input")


@dataclass(frozen=True)
class Ablation:
    """What a run leaves out. The strategies find it in their context."""

    disabled: tuple[str, ...] = ()

    @property
    def active(self) -> bool:
        """Whether this run only measures time, so that it must not evaluate or save."""
        return bool(self.disabled)

    @property
    def communication(self) -> bool:
        return "communication" in self.disabled

    @property
    def input(self) -> bool:
        return "input" in self.disabled


def read_ablation() -> Ablation:
    """Returns what LOCKSTEP_WITHOUT names."""
    names = environment_variables.disabled_parts()
    for name in names:
        if name not in KNOWN:
            raise LockstepError(f"LOCKSTEP_WITHOUT={name} is not known.", f"Known: {', '.join(KNOWN)}.", code=2)
    return Ablation(names)
