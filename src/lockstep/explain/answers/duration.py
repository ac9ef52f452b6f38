"""Question 1: where the wall time went, and when the goal will be reached."""

from dataclasses import dataclass

from lockstep.explain.answer import Answer, Figure, told
from lockstep.explain.formatting import count, moment, plural, seconds, share
from lockstep.explain.pages import charts
from lockstep.explain.reading.journal_file import took
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import PHASES

QUESTION = "How long did the training take?"
OTHER_COLOURS = {
    "start": "--grey",
    "evaluation": "--orange",
    "checkpoints": "--yellow",
    "probes": "--brown",
    "other": "--pale",
}


@dataclass(frozen=True)
class Duration:
    """Wall seconds of all launches, from each one's first line in the journal to its last."""

    wall: float
    parts: dict[str, float]  # adds up to wall
    between: float  # when nothing ran, between launches
    redone: float  # of steps that a later launch had to compute again
    pace: float | None  # wall seconds per step in the last launch, evaluations and checkpoints included
    goal: int | None
    left: int

    @property
    def eta(self) -> float | None:
        return None if self.pace is None or self.goal is None else self.left * self.pace


def measure(record: Record) -> Duration:
    worker, launches = record.primary, record.launches
    wall = sum(launch.end - launch.begin for launch in launches)
    span = launches[-1].end - launches[0].begin if launches else 0.0
    starts = [(launch.first_moment or launch.end) - launch.begin for launch in launches]
    parts = {"start": sum(max(0.0, start) for start in starts)}
    parts |= {phase: float(getattr(worker.every, phase).sum()) for phase in PHASES}
    for name, kinds in (("evaluation", ["evaluation"]), ("checkpoints", ["checkpoint"]), ("probes", ["model", "link"])):
        parts[name] = sum(took(line) for kind in kinds for line in worker.of(kind))
    if not parts["probes"]:
        del parts["probes"]
    parts["other"] = max(0.0, wall - sum(parts.values()))
    goal = record.setting("train.steps")
    steps = worker.steps.where(worker.steps.attempt == worker.steps.attempt[-1]) if len(worker.steps) else worker.steps
    pace = float(steps.time[-1] - steps.time[0]) / (len(steps) - 1) if len(steps) > 1 else None
    return Duration(
        wall=wall,
        parts=parts,
        between=max(0.0, span - wall),
        redone=float(worker.every.seconds.sum() - worker.steps.seconds.sum()),
        pace=pace,
        goal=goal if isinstance(goal, int) else None,
        left=max(0, goal - record.reached) if isinstance(goal, int) else 0,
    )


def answer(record: Record, found: Duration) -> Answer:
    launches = record.launches
    if not launches or not found.wall:
        return Answer(1, QUESTION, "not known", "The journal has no launch, so no time was measured.", "unknown")
    training = sum(found.parts[phase] for phase in PHASES) / found.wall
    beside = (found.parts["evaluation"] + found.parts["checkpoints"]) / found.wall
    several = f" in {len(launches)} launches" if len(launches) > 1 else ""
    text = (
        f"{seconds(found.wall)}{several}, from {moment(launches[0].begin)} to {moment(launches[-1].end)}. "
        f"{share(training)} of it was training steps, {share(beside)} evaluation and checkpoints. {_eta(record, found)}"
    )
    return Answer(1, QUESTION, seconds(found.wall), text, "plain", _figures(record, found), [_chart(found)])


def _figures(record: Record, found: Duration) -> list[Figure]:
    how = "worker 0's journal, from each launch's first line to its last, without the start of the programs"
    figures = [told("wall time", found.wall, seconds, how)]
    measured = {
        "start": "first line of each launch to its first step: build the model, load a checkpoint",
        "evaluation": f"sum of {plural(len(record.primary.of('evaluation')), 'evaluation')}",
        "checkpoints": f"sum of {plural(len(record.primary.of('checkpoint')), 'checkpoint')}",
        "probes": "measuring the model's FLOP/s and the network",
        "other": "the rest of the wall time: journal, progress, waiting at the end",
    }
    clock = f"phase clock, sum of {count(len(record.primary.every))} steps including warm-up, worker 0"
    for name, value in found.parts.items():
        text = f"{seconds(value)} ({share(value / found.wall)})"
        figures.append(Figure(name, text, measured.get(name, clock), value))
    if found.between:
        figures.append(told("nothing ran", found.between, seconds, "between launches; not part of the wall time"))
    if found.redone > 0:
        how = "steps beyond the last checkpoint of a launch that was killed"
        figures.append(told("computed twice", found.redone, seconds, how))
    if found.pace is not None:
        how = "from the first step of the last launch to its last, evaluations and checkpoints included"
        figures.append(told("pace, per step", found.pace, seconds, how))
    if found.left and found.eta is not None:
        figures.append(told("time to the goal", found.eta, seconds, f"{count(found.left)} steps left times the pace"))
    return figures


def _eta(record: Record, found: Duration) -> str:
    if found.goal is None:
        return "The goal (train.steps) is not known."
    if not found.left:
        return f"The goal of {count(found.goal)} steps is reached."
    if record.state == "finished":
        return f"It stopped early at step {count(record.reached)} of {count(found.goal)}: the score no longer improved."
    if found.eta is None:
        return f"{count(found.left)} of {count(found.goal)} steps are left."
    if record.state == "running":
        end = record.launches[-1].end + found.eta
        return f"{count(found.left)} steps are left: about {seconds(found.eta)}, until {moment(end)}."
    return f"The remaining {count(found.left)} of {count(found.goal)} steps would take about {seconds(found.eta)}."


def _chart(found: Duration) -> charts.Chart:
    units = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0}
    name = "seconds" if found.wall < 120 else "minutes" if found.wall < 7200 else "hours"
    colours = OTHER_COLOURS | charts.PHASE_COLOURS
    parts = {part: ([value / units[name]], colours[part]) for part, value in found.parts.items() if value > 0}
    largest = sorted(found.parts.items(), key=lambda item: -item[1])[:3]
    named = ", ".join(f"{part} {share(value / found.wall)}" for part, value in largest)
    says = f"The largest parts of the wall time: {named}"
    return charts.stacked("wall-time", "Wall time by phase", says, ["run"], parts, name)
