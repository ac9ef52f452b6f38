"""What every kind of cluster can do with a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from lockstep.jobs.job import Job

MADE_UP_SECRET = "made-up secret"
"""What `pretend` finds at a mounted path, instead of a secret that only the platform has."""


@dataclass(frozen=True)
class Submission:
    """A job that was handed to a cluster, as the record of jobs keeps it."""

    kind: str
    name: str
    id: str  # under which the cluster knows it
    run: str
    time: float  # seconds since 1970
    facts: dict[str, str] = field(default_factory=dict)  # what this kind needs to find it again


class JobState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class JobProcess:
    """A process that a platform would start, as its own text says."""

    words: tuple[str, ...]
    variables: dict[str, str]  # those of the text, and those that the platform injects
    node: int
    names: tuple[str, ...] = ()  # names and addresses under which the other nodes reach this one
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Paths at which the platform mounts something, each with the file that is there, MADE_UP_SECRET, or an empty text for
    a folder that all nodes share."""


class Kind(Protocol):
    """A kind of cluster. What it prints is all that it needs: `pretend` reads the printed text alone."""

    name: str

    def print_job(self, job: Job) -> str:
        """Returns the exact script, manifest or command, with comments. Nothing is started."""

    def parse(self, text: str) -> list[JobProcess]:
        """Returns what the platform would start from that text, with exactly the variables that it would inject."""

    def submit(self, job: Job) -> Submission:
        """Hands the job over. Raises LockstepError."""

    def read_state(self, submission: Submission) -> JobState:
        """Returns how the job stands."""

    def read_logs(self, submission: Submission) -> str:
        """Returns what the job has printed."""

    def cancel(self, submission: Submission) -> None:
        """Ends the job."""
