"""What went wrong in a run, when, what was done about it and what it cost: from the faults that workers and monitors noted,
and from launches that ended without a word."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lockstep.explain.formatting import count, plural
from lockstep.explain.measures.absences import Absence
from lockstep.explain.reading.json_access import get_number
from lockstep.explain.reading.launches import Launch
from lockstep.explain.reading.record import Record
from lockstep.run.journal import Line
from lockstep.run.standing import as_integer

SLOW, SLOW_ENDS = "slow worker", "slow worker ends"
CONTINUES = "continues"
RESTARTED = "restarted"
MOST_SECONDS = 7 * 86_400.0
"""A moment that lies further back is none of our clock."""
FATAL = ("died", "ended", "host lost")
"""What a monitor notes before a launch ends."""


@dataclass(frozen=True)
class Incident:
    """One thing that went wrong."""

    moment: float  # when it began
    who: str  # empty: nobody in particular
    what: str
    detail: str  # the sentence that was said at the time
    evidence: str = ""  # established, supported or unknown; empty where nothing has to be proven
    action: str = ""  # what Lockstep did
    lost: float | None = None  # seconds; None: not known
    repeated: int = 0  # steps that were computed again
    until: float | None = None  # when it was over


def list_incidents(record: Record, absences: Sequence[Absence]) -> list[Incident]:
    """Returns all incidents in the order of time."""
    incidents, explained = _list_of_monitors(record)
    incidents += [_describe_absence(absence) for absence in absences]
    incidents += _list_cut_off(record, explained)
    incidents += _list_of_primary(record, explained)
    return sorted(incidents, key=lambda incident: incident.moment)


def _list_of_monitors(record: Record) -> tuple[list[Incident], set[int]]:
    """Returns what monitors noted, and the numbers of the launches whose end that explains."""
    incidents, explained = list[Incident](), set[int]()
    open_stalls, open_slow = dict[int | None, Line](), dict[int | None, Line]()
    for line in record.monitored_faults:
        what, rank = str(line.get("what", "")), as_integer(line.get("rank"))
        if what == "stall":
            open_stalls[rank] = line
        elif what == CONTINUES:
            stall = open_stalls.pop(rank, line)
            incidents.append(
                _describe_stall(record, stall, float(line["time"]), "It continued by itself, and nothing was done.")
            )
        elif what in FATAL:
            open_stalls.clear()
            incident, attempt = _describe_end(record, line)
            if attempt not in explained:  # of several monitors, and of several workers that were ended, the first one
                incidents.append(incident)
            explained |= {attempt} if attempt is not None else set()
        elif what == SLOW:
            open_slow[rank] = line
        elif what == SLOW_ENDS:
            open_slow.pop(rank, None)
            incidents.append(_describe_slow(record, line, float(line["time"])))
    incidents += [_describe_stall(record, line, None, "") for line in open_stalls.values()]
    incidents += [_describe_slow(record, line, None) for line in open_slow.values()]
    return incidents, explained


def _name(record: Record, line: Line) -> str:
    """Names the worker, with its host where there are several, or the host."""
    rank, host = as_integer(line.get("rank")), str(line.get("host") or "")
    if line.get("what") == "host lost":
        return f"host {host}".strip()
    where = f" on {host}" if host and len(set(record.hosts)) > 1 else ""
    return f"the workers{where}" if rank is None else f"worker {rank}{where}"


def _get_since(line: Line) -> float:
    moment = float(line["time"])
    since = get_number(line.get("since"))
    return since if since is not None and moment - MOST_SECONDS < since <= moment else moment


def _describe_stall(record: Record, line: Line, until: float | None, action: str) -> Incident:
    begin = _get_since(line)
    lost = None if until is None else max(0.0, until - begin)
    sentence, evidence = str(line.get("sentence") or ""), str(line.get("evidence") or "")
    return Incident(begin, _name(record, line), "stood still", sentence, evidence, action, lost, until=until)


def _describe_slow(record: Record, line: Line, until: float | None) -> Incident:
    begin, share = _get_since(line), get_number(line.get("share")) or 0.0
    lost = None if until is None else share * (until - begin)
    action = "It was named; the run went on at its pace."
    sentence, evidence = str(line.get("sentence") or ""), str(line.get("evidence") or "")
    return Incident(
        begin, _name(record, line), "was slower than the others", sentence, evidence, action, lost, until=until
    )


def _describe_end(record: Record, line: Line) -> tuple[Incident, int | None]:
    """Returns the fault that ended a launch, with what the next launch made of it; and the number of the launch that
    ended."""
    moment, begin = float(line["time"]), _get_since(line)
    what = {"died": "died", "ended": "stood still and was ended", "host lost": "was not heard any more"}[
        str(line["what"])
    ]
    incident = Incident(
        begin, _name(record, line), what, str(line.get("sentence") or ""), str(line.get("evidence") or "")
    )
    before = [launch for launch in record.launches if launch.begin <= moment]
    later = [launch for launch in record.launches if launch.begin > moment]
    if not before or before[-1].reason:
        return replace(incident, lost=max(0.0, moment - begin)), None
    if not later:
        action = "" if record.state == "running" else "The training stopped."
        return replace(incident, action=action, lost=max(0.0, moment - begin)), before[-1].attempt
    repeated, again = _count_repeated(record, before[-1], later[0])
    restart = _find_restart(record, later[0])
    lost = max(0.0, moment - begin) + again
    if restart is None:
        action = f"The training stopped, and was started again {_name_start(later[0])}."
        return replace(incident, action=action, lost=lost, repeated=repeated), before[-1].attempt
    lost += get_number(restart.get("seconds")) or 0.0
    action, until = f"All workers were started again {_name_start(later[0])}.", float(restart["time"])
    return replace(incident, action=action, lost=lost, repeated=repeated, until=until), before[-1].attempt


def _name_start(launch: Launch) -> str:
    return "from the beginning" if not launch.resumed else f"from the checkpoint of step {count(launch.resumed)}"


def _count_repeated(record: Record, before: Launch, after: Launch) -> tuple[int, float]:
    """Returns how many steps of a launch the next one computed again, and their seconds."""
    steps = record.primary.all_steps
    end = after.begin if math.isfinite(after.begin) else math.inf
    own = steps.where((steps.time >= before.begin) & (steps.time < end) & (steps.step > (after.resumed or 0)))
    return len(own), float(own.seconds.sum())


def _list_cut_off(record: Record, explained: set[int]) -> list[Incident]:
    """Returns the launches that ended without a word: the launcher or the machine was killed."""
    launches, incidents = record.launches, list[Incident]()
    for launch, after in zip(launches, [*launches[1:], None], strict=False):
        is_last_and_alive = after is None and record.state != "cut off"
        if launch.reason or launch.attempt in explained or is_last_and_alive:
            continue
        if after is not None and _find_restart(record, after) is not None:
            continue  # the line about the restart says more
        repeated, again = (0, 0.0) if after is None else _count_repeated(record, launch, after)
        action = "" if after is None else f"It was started again {_name_start(after)}."
        reached = f"after step {count(launch.last_step)}" if launch.last_step is not None else "before its first step"
        detail = (
            f"Launch {launch.attempt} ended {reached} and could not say why: everything was killed, or power was lost."
        )
        incidents.append(
            Incident(launch.end, "", "The training was cut off", detail, "unknown", action, again, repeated)
        )
    return incidents


def _find_restart(record: Record, launch: Launch) -> Line | None:
    """Returns the line with which a launch says that it replaces one whose worker had died."""
    restarts = [line for line in record.primary.select_events("fault") if line.get("what") == RESTARTED]
    return next((line for line in restarts if launch.begin <= float(line["time"]) <= launch.end + 1.0), None)


def _describe_absence(absence: Absence) -> Incident:
    lost = None if absence.back is None else absence.back - absence.lost
    action = "The others continued." if absence.back is None else "The others continued, and it was started again."
    return Incident(absence.lost, f"worker {absence.worker}", "was lost", absence.detail, "", action, lost)


def _list_of_primary(record: Record, explained: set[int]) -> list[Incident]:
    """Returns the faults in the first worker's journal, those of one kind together."""
    groups: dict[str, list[Line]] = {}
    pairs = zip(record.launches, record.launches[1:], strict=False)
    known = [_find_restart(record, after) for before, after in pairs if before.attempt in explained]
    for line in record.primary.select_events("fault"):
        what, detail = str(line.get("what", "")), str(line.get("detail") or "")
        if line in known:
            continue
        groups.setdefault(detail if what == RESTARTED else what, []).append(line)
    return [_describe_group(record, lines) for lines in groups.values()]


def _describe_group(record: Record, lines: list[Line]) -> Incident:
    first, what = lines[0], str(lines[0].get("what", ""))
    seconds = [value for line in lines if (value := get_number(line.get("seconds"))) is not None]
    lost = sum(seconds) if seconds else None
    moment = float(first["time"])
    if what == RESTARTED:
        begin = moment - (lost or 0.0)
        launch = next((one for one in record.launches if one.begin <= moment <= one.end + 1.0), None)
        before = [one for one in record.launches if launch is not None and one.begin < launch.begin]
        repeated, again = _count_repeated(record, before[-1], launch) if launch is not None and before else (0, 0.0)
        action = "All workers were started again."
        detail = str(first.get("detail") or "")
        return Incident(begin, "", "A worker died", detail, "", action, (lost or 0.0) + again, repeated, moment)
    steps = [step for line in lines if (step := as_integer(line.get("step"))) is not None]
    where = (
        ""
        if not steps
        else f"step {count(steps[0])}"
        if len(steps) == 1
        else f"steps {count(min(steps))} to {count(max(steps))}"
    )
    times = "" if len(lines) == 1 else f"{plural(len(lines), 'time')}"
    detail = str(first.get("detail") or "") if len(lines) == 1 else ""
    return Incident(moment, "", what, ", ".join(filter(None, (times, where, detail))), lost=lost)
