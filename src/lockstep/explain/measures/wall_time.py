"""Where the wall time of a run went, and how long the rest will take."""

from dataclasses import dataclass

from lockstep.explain.reading.journal_file import get_seconds
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import PHASES

EVENTS = {
    "evaluation": ("evaluation", "evaluation_stopped"),
    "checkpoints": ("checkpoint",),
    "probes": ("model", "link"),
}
"""Parts of the wall time that are sums over events, and the kinds of those events."""


@dataclass(frozen=True)
class WallTime:
    """Wall seconds of all launches, from the first journal line of each to its last."""

    total: float
    parts: dict[str, float]  # adds up to `total`
    between: float  # between launches, when nothing ran
    redone: float  # steps that a later launch had to compute again
    pace: float | None  # wall seconds per step in the last launch, evaluations and checkpoints included
    goal: int | None  # train.steps
    steps_left: int

    @property
    def eta(self) -> float | None:
        return None if self.pace is None or self.goal is None else self.steps_left * self.pace


def measure_wall_time(record: Record) -> WallTime:
    worker, launches = record.primary, record.launches
    total = sum(launch.end - launch.begin for launch in launches)
    span = launches[-1].end - launches[0].begin if launches else 0.0
    starts = [(launch.first_moment or launch.end) - launch.begin for launch in launches]
    parts = {"start": sum(max(0.0, start) for start in starts)}
    parts |= {phase: float(getattr(worker.all_steps, phase).sum()) for phase in PHASES}
    for name, kinds in EVENTS.items():
        parts[name] = sum(get_seconds(line) for kind in kinds for line in worker.select_events(kind))
    if not parts["probes"]:
        del parts["probes"]
    parts["other"] = max(0.0, total - sum(parts.values()))
    goal = record.setting("train.steps")
    steps = worker.steps.where(worker.steps.attempt == worker.steps.attempt[-1]) if len(worker.steps) else worker.steps
    pace = float(steps.time[-1] - steps.time[0]) / (len(steps) - 1) if len(steps) > 1 else None
    return WallTime(
        total=total,
        parts=parts,
        between=max(0.0, span - total),
        redone=float(worker.all_steps.seconds.sum() - worker.steps.seconds.sum()),
        pace=pace,
        goal=goal if isinstance(goal, int) else None,
        steps_left=max(0, goal - record.last_step) if isinstance(goal, int) else 0,
    )
