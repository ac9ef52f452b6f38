"""The section of a report about faults: what happened, what Lockstep did, what it cost and what to do. Runs without faults
have none."""

import re
from dataclasses import dataclass
from typing import TypedDict

from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import count, plural, seconds, share
from lockstep.explain.measures.incidents import Incident

MOST_ROWS = 60
CAUSES = (
    (
        r"because memory ran out|ran out of memory",
        "memory ran out",
        "Give a worker less to hold: set batch.micro_words, take more workers with strategy.name=sharded, or raise the "
        "memory limit of the job.",
    ),
    (
        r"SIGKILL",
        "somebody killed its process",
        "Find out who sent SIGKILL: the batch system at a limit, a clean-up script or a person.",
    ),
    (
        r"is stopped",
        "its process was stopped",
        "Find out who stops processes there: a debugger, a batch system that suspends jobs, or a person (SIGSTOP).",
    ),
    (
        r"cgroup is frozen",
        "its control group was frozen",
        "Find out who freezes the control group: a container runtime (pause), or a batch system that suspends jobs.",
    ),
    (
        r"waits for a disk",
        "a disk or a file system did not answer",
        "Look at the disk or file server that the run uses; the system's log names one that does not answer.",
    ),
    (
        r"SIGSEGV|SIGABRT|SIGBUS|SIGFPE|SIGILL",
        "a library crashed",
        "The log in the run folder has the stack of the crash. If it happens again, try train.kernels=torch and report it.",
    ),
    (
        r"computes without progress",
        "it computed without progress",
        "Look at the line of the program that the sentence names: it never ends for this batch.",
    ),
    (
        r"skipped an exchange|lost connection",
        "the workers lost each other",
        "Look at the network between the machines, and at code that takes part in an exchange on some workers only.",
    ),
    (
        r"cgroup throttles it",
        "its control group has too little processor time",
        "Raise the processor limit of the job, or set train.threads to what the limit allows.",
    ),
    (
        r"other programs use its cores",
        "other programs used its cores",
        "Train with nothing else running on that machine.",
    ),
    (
        r"do less per second",
        "its cores were slower",
        "Compare that machine with the others: power settings, temperature, and other virtual machines on the same host.",
    ),
    (
        r"waits for its input",
        "its input came late",
        "Look at the disk from which that worker reads.",
    ),
    (
        r"exit code",
        "its program failed",
        "Read the exception: it names the line of the program. If it comes again at the same step, suspect the batch.",
    ),
    (
        r"cut off|could not say why",
        "everything ended at once",
        "Look whether the launcher was killed or the machine went down: the system's log of that moment knows.",
    ),
)
"""What a sentence matches, what that means in plain words, and what to do about it. The first match counts."""


class IncidentFacts(TypedDict):
    """A fault in the JSON of a report."""

    time: float
    who: str
    what: str
    detail: str
    evidence: str
    action: str
    seconds_lost: float | None
    steps_again: int


class FaultFacts(TypedDict):
    """The faults in the JSON of a report."""

    summary: str
    seconds_lost: float
    share_lost: float | None
    steps_again: int
    faults: list[IncidentFacts]
    advice: list[str]


@dataclass(frozen=True)
class FaultRow:
    """One fault, in the words of the page."""

    moment: float
    title: str
    evidence: str
    detail: str
    action: str
    cost: str


@dataclass(frozen=True)
class WhatWentWrong:
    """The section. `more` is the number of incidents that `rows` leaves out."""

    incidents: list[Incident]
    summary: str
    advice: list[str]
    lost: float
    lost_share: float | None

    @property
    def rows(self) -> list[FaultRow]:
        return [_make_row(incident) for incident in self.incidents[:MOST_ROWS]]

    @property
    def more(self) -> int:
        return max(0, len(self.incidents) - MOST_ROWS)

    def facts(self) -> FaultFacts:
        faults: list[IncidentFacts] = [
            {
                "time": incident.moment,
                "who": incident.who,
                "what": incident.what,
                "detail": incident.detail,
                "evidence": incident.evidence,
                "action": incident.action,
                "seconds_lost": incident.lost,
                "steps_again": incident.repeated,
            }
            for incident in self.incidents
        ]
        again = sum(incident.repeated for incident in self.incidents)
        return {
            "summary": self.summary,
            "seconds_lost": self.lost,
            "share_lost": self.lost_share,
            "steps_again": again,
            "faults": faults,
            "advice": self.advice,
        }


def explain_faults(evidence: Evidence) -> WhatWentWrong | None:
    """Returns None for a run without faults."""
    incidents = evidence.incidents
    if not incidents:
        return None
    lost = sum(incident.lost or 0.0 for incident in incidents)
    total = _count_run_seconds(evidence)
    lost_share = min(1.0, lost / total) if total > 0 else None
    advice = list(dict.fromkeys(cause[1] for incident in incidents if (cause := _find_cause(incident)) is not None))
    return WhatWentWrong(incidents, _summarise(incidents, lost, lost_share), advice, lost, lost_share)


def _count_run_seconds(evidence: Evidence) -> float:
    """Returns the seconds of all launches, and of the pauses between them that a restart filled."""
    launches, pauses = evidence.record.launches, 0.0
    for before, after in zip(launches, launches[1:], strict=False):
        if any(
            one.until is not None and before.end <= one.until and one.moment <= after.begin
            for one in evidence.incidents
        ):
            pauses += max(0.0, after.begin - before.end)
    return evidence.wall_time.total + pauses


def _summarise(incidents: list[Incident], lost: float, lost_share: float | None) -> str:
    again = sum(incident.repeated for incident in incidents)
    part = f", {share(lost_share)} of the time of this run" if lost_share is not None else ""
    cost = f"They cost about {seconds(lost)}{part}" if len(incidents) > 1 else f"It cost about {seconds(lost)}{part}"
    repeated = f"; {plural(again, 'step')} {'was' if again == 1 else 'were'} computed again" if again else ""
    unknown = sum(incident.lost is None for incident in incidents)
    rest = f" For {count(unknown)} of them the cost is not known." if unknown and lost else ""
    noticed = f"{plural(len(incidents), 'fault')} {'was' if len(incidents) == 1 else 'were'} noticed."
    return f"{noticed} {cost}{repeated}.{rest}" if lost else f"{noticed}{' The cost is not known.' * bool(unknown)}"


def _find_cause(incident: Incident) -> tuple[str, str] | None:
    """Returns the cause in plain words, and what to do about it."""
    text = f"{incident.what} {incident.detail}"
    return next(((plain, remedy) for pattern, plain, remedy in CAUSES if re.search(pattern, text)), None)


def _make_row(incident: Incident) -> FaultRow:
    cause = _find_cause(incident)
    title = f"{incident.who} {incident.what}".strip()
    title = title[:1].upper() + title[1:]
    if cause is not None and incident.evidence in ("established", "supported"):
        title += f": {cause[0]}"
    cost = "cost not known" if incident.lost is None else f"{seconds(incident.lost)} lost"
    again = f", {plural(incident.repeated, 'step')} computed again" if incident.repeated else ""
    return FaultRow(incident.moment, title, incident.evidence, incident.detail, incident.action, f"{cost}{again}")
