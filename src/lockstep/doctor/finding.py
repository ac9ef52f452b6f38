"""What an examination finds."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is. A launch with a failure would not work, or would not be worth its money."""

    PASS = "pass"
    SKIP = "skip"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """A sentence about one thing that was examined, on the hosts that it names."""

    level: Level
    check: str  # what was examined: versions, clock, ...
    host: str  # empty: all hosts
    sentence: str
    remedy: str = ""


def passed(check: str, sentence: str) -> Finding:
    return Finding(Level.PASS, check, "", sentence)


def skipped(check: str, sentence: str) -> Finding:
    return Finding(Level.SKIP, check, "", sentence)


def list_names(names: Iterable[str]) -> str:
    """Returns `a`, `a and b` or `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
