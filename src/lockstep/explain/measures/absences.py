"""When workers of a resilient run were lost, and when they were back."""

import time
from collections import Counter
from dataclasses import dataclass

from lockstep.explain.formatting import count, seconds
from lockstep.explain.reading.record import SHARED, Record, Worker
from lockstep.run.standing import as_integer


@dataclass(frozen=True)
class Absence:
    """A worker that died while the others continued. Times are those of its own journal."""

    worker: int
    step: int | None  # the last step that it took before
    lost: float  # when it last wrote
    back: float | None  # when it had the others' state or took a step again; None: never

    @property
    def detail(self) -> str:
        """Returns how long it was away, for people."""
        after = "before its first step" if self.step is None else f"after step {count(self.step)}"
        if self.back is None:
            return f"{after}, at {_format_clock(self.lost)}, and did not come back"
        away = f"{seconds(self.back - self.lost)} later"
        return f"{after}, at {_format_clock(self.lost)}, and back at {_format_clock(self.back)}, {away}"


def list_absences(record: Record) -> list[Absence]:
    """Returns the absences in the order of time. Empty where a dead worker ends the run."""
    if record.last_launch.strategy != "resilient":
        return []
    absences = [absence for worker in record.workers.values() for absence in _list_of_worker(worker, record)]
    return sorted(absences, key=lambda absence: absence.lost)


def _list_of_worker(worker: Worker, record: Record) -> list[Absence]:
    own = [event for event in worker.events if event["kind"] not in SHARED]
    steps = worker.all_steps
    moments = sorted([*(float(event["time"]) for event in own), *steps.time.tolist()])
    runs = [event for event in own if event["kind"] == "run"]
    absences = []
    for before, again in zip(runs, runs[1:], strict=False):
        if before.get("attempt") != again.get("attempt"):
            continue  # the run was started again
        start = float(again["time"])
        heals = [float(event["time"]) for event in own if event["kind"] == "heal"]
        returns = [moment for moment in [*heals, *steps.time.tolist()] if moment > start]
        absences.append(
            Absence(
                worker.rank,
                _find_last_step(worker, start),
                max(moment for moment in moments if moment < start),
                min(returns, default=None),
            )
        )
    quorums = [event for other in record.workers.values() for event in other.select_events("quorum")]
    last = max(quorums, key=lambda event: float(event["time"]), default={})
    is_missing = last.get("participants") is not None and worker.rank not in last["participants"]
    if is_missing and moments and moments[-1] < float(last["time"]):
        absences.append(Absence(worker.rank, _find_last_step(worker, float(last["time"])), moments[-1], None))
    return absences


def _find_last_step(worker: Worker, moment: float) -> int | None:
    before = worker.all_steps.step[worker.all_steps.time < moment]
    return as_integer(int(before[-1])) if len(before) else None


def describe_absences(absences: list[Absence]) -> str:
    """Returns who was lost, when and for how long; empty when nobody was."""
    if not absences:
        return ""
    if len(absences) == 1:
        return f"Worker {absences[0].worker} was lost {absences[0].detail}."
    times = Counter(absence.worker for absence in absences)
    who = (
        f"always worker {absences[0].worker}"
        if len(times) == 1
        else ", ".join(
            f"worker {worker} {'once' if number == 1 else f'{number} times'}"
            for worker, number in sorted(times.items())
        )
    )
    away = sum(absence.back - absence.lost for absence in absences if absence.back is not None)
    gone = [str(absence.worker) for absence in absences if absence.back is None]
    rest = f"; worker {' and '.join(gone)} did not come back" if gone else ""
    return f"Workers were lost {len(absences)} times: {who}. They were away for {seconds(away)} in all{rest}."


def _format_clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))
