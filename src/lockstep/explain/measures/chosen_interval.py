"""The interval between checkpoints that train.checkpoint_every=auto chose, what it costs and what a failure costs."""

from dataclasses import dataclass, replace

from lockstep.explain.reading.record import Record

USUAL_STEPS = 1000
"""The default of train.checkpoint_every, to compare with."""


@dataclass(frozen=True)
class SaveInterval:
    """The last choice in the journal, and the figures that it was made from."""

    step: int
    every: int
    step_seconds: float
    save_seconds: float
    restart_seconds: float
    failure_hours: float

    @property
    def seconds(self) -> float:
        return self.every * self.step_seconds

    @property
    def save_share(self) -> float:
        """The share of the time that saves take."""
        return self.save_seconds / self.seconds

    @property
    def failure_share(self) -> float:
        """The share of the time that failures take: each undoes half an interval on average, and needs a restart."""
        return (self.seconds / 2 + self.restart_seconds) / (3600 * self.failure_hours)

    def with_steps(self, every: int) -> "SaveInterval":
        return replace(self, every=every)


def measure_save_interval(record: Record) -> SaveInterval | None:
    """Returns the last interval that was chosen; None if the config names a number."""
    lines = record.primary.select_events("interval")
    if not lines or record.setting("train.checkpoint_every") != "auto":
        return None
    facts = [lines[-1].get(name) for name in SaveInterval.__dataclass_fields__]
    numbers = [float(value) for value in facts if isinstance(value, int | float) and value >= 0]
    if len(numbers) < len(facts):
        return None
    interval = SaveInterval(int(numbers[0]), int(numbers[1]), *numbers[2:])
    return interval if interval.seconds and interval.failure_hours else None
