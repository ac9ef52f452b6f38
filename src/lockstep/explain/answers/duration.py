"""How long the training took, where the wall time went, and when the goal will be reached."""

from lockstep.explain.answer import Answer, Chart, Figure, make_figure
from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import count, plural, seconds, share, timestamp
from lockstep.explain.measures.wall_time import EVENTS, WallTime
from lockstep.explain.pages import charts
from lockstep.explain.reading.journal_file import get_seconds
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


def answer(evidence: Evidence) -> Answer:
    record, wall = evidence.record, evidence.wall_time
    launches = record.launches
    if not launches or not wall.total:
        return Answer(QUESTION, "not known", "The journal has no launch, so no time was measured.", "unknown")
    training = sum(wall.parts[phase] for phase in PHASES) / wall.total
    beside = (wall.parts["evaluation"] + wall.parts["checkpoints"]) / wall.total
    several = f" in {len(launches)} launches" if len(launches) > 1 else ""
    text = (
        f"{seconds(wall.total)}{several}, from {timestamp(launches[0].begin)} to {timestamp(launches[-1].end)}. "
        f"{share(training)} of it was training steps, {share(beside)} evaluation and checkpoints. "
        f"{_describe_rest(record, wall)}"
    )
    return Answer(QUESTION, seconds(wall.total), text, "plain", _list_figures(record, wall), [_draw_parts(wall)])


def _list_figures(record: Record, wall: WallTime) -> list[Figure]:
    how = "worker 0's journal, from each launch's first line to its last, without the start of the programs"
    figures = [make_figure("wall time", wall.total, seconds, how)]
    measured = {
        "start": "first line of each launch to its first step: build the model, load a checkpoint",
        "evaluation": _describe_evaluations(record),
        "checkpoints": _describe_checkpoints(record),
        "probes": "measuring the model's FLOP/s and the network",
        "other": "the rest of the wall time: journal, progress, waiting at the end",
    }
    clock = f"phase clock, sum of {count(len(record.primary.all_steps))} steps including warm-up, worker 0"
    for name, value in wall.parts.items():
        text = f"{seconds(value)} ({share(value / wall.total)})"
        figures.append(Figure(name, text, measured.get(name, clock), value))
    if wall.between:
        figures.append(make_figure("nothing ran", wall.between, seconds, "between launches; not part of the wall time"))
    if wall.redone > 0:
        how = "steps beyond the last checkpoint of a launch that was killed"
        figures.append(make_figure("computed twice", wall.redone, seconds, how))
    if wall.pace is not None:
        how = "from the first step of the last launch to its last, evaluations and checkpoints included"
        figures.append(make_figure("pace, per step", wall.pace, seconds, how))
    if wall.steps_left and wall.eta is not None:
        how = f"{count(wall.steps_left)} steps left times the pace"
        figures.append(make_figure("time to the goal", wall.eta, seconds, how))
    return figures


def _describe_evaluations(record: Record) -> str:
    """Says what the seconds of the evaluations add up: also those that gave no scores, or scores of undone steps."""
    finished, stopped = (len(record.primary.select_events(kind)) for kind in EVENTS["evaluation"])
    repeated = finished - len(record.evaluations)
    text = f"sum of {plural(finished, 'evaluation')}"
    text += f", {count(repeated)} of them of steps that were undone or evaluated again" if repeated > 0 else ""
    return text + (f", and of {count(stopped)} more, interrupted before the end" if stopped else "")


def _describe_checkpoints(record: Record) -> str:
    """Says what the seconds of the checkpoints add up: only those for which training waited."""
    saves = record.primary.select_events("checkpoint")
    background = sum(get_seconds(line, "background_seconds") for line in saves)
    text = f"sum of {plural(len(saves), 'checkpoint')}"
    return text + (f"; {seconds(background)} more were written in the background" if background else "")


def _describe_rest(record: Record, wall: WallTime) -> str:
    left = count(wall.steps_left)
    if wall.goal is None:
        return "The goal (train.steps) is not known."
    if not wall.steps_left:
        return f"The goal of {count(wall.goal)} steps is reached."
    if record.state == "finished":
        step = count(record.last_step)
        return f"It stopped early at step {step} of {count(wall.goal)}: the score no longer improved."
    if wall.eta is None:
        return f"{left} of {count(wall.goal)} steps are left."
    if record.state == "running":
        end = record.launches[-1].end + wall.eta
        return f"{left} steps are left: about {seconds(wall.eta)}, until {timestamp(end)}."
    return f"The remaining {left} of {count(wall.goal)} steps would take about {seconds(wall.eta)}."


def _draw_parts(wall: WallTime) -> Chart:
    units = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0}
    unit = "seconds" if wall.total < 120 else "minutes" if wall.total < 7200 else "hours"
    colours = OTHER_COLOURS | charts.PHASE_COLOURS
    parts = {part: ([value / units[unit]], colours[part]) for part, value in wall.parts.items() if value > 0}
    largest = sorted(wall.parts.items(), key=lambda item: -item[1])[:3]
    named = ", ".join(f"{part} {share(value / wall.total)}" for part, value in largest)
    description = f"The largest parts of the wall time: {named}"
    return charts.draw_stacked_bars("wall-time", "Wall time by phase", description, ["run"], parts, unit)
