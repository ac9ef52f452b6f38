"""Whether the run folder takes checkpoints quickly, has room, and is seen by all machines."""

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.doctor.finding import Finding, Level, list_names, passed

SLOW_BYTES, USELESS_BYTES = 50e6, 10e6
"""Bytes a second."""
SLOW_RENAME_SECONDS = 0.25
LEAST_FREE_BYTES = 2e9


@dataclass(frozen=True)
class DiskFacts:
    """A folder on a machine, as the agent has measured it."""

    folder: str
    free_bytes: int
    bytes_per_second: float
    rename_seconds: float


def judge_disks(disks: Mapping[str, DiskFacts]) -> list[Finding]:
    findings = []
    for name, disk in disks.items():
        where, rate = f"{name}:{disk.folder}", disk.bytes_per_second
        if rate < SLOW_BYTES:
            level = Level.FAIL if rate < USELESS_BYTES else Level.WARN
            sentence = f"{where} takes {rate / 1e6:,.3g} MB/s: a checkpoint of 1 GB would need {1e9 / rate:,.0f} s."
            findings.append(Finding(level, "disk", name, sentence, "Put the run folder on another disk (--run)."))
        if disk.rename_seconds > SLOW_RENAME_SECONDS:
            sentence = f"A small file on {where} takes {disk.rename_seconds:,.2f} s to be written, synced and renamed."
            findings.append(Finding(Level.WARN, "disk", name, sentence, "Put the run folder on another disk (--run)."))
        if disk.free_bytes < LEAST_FREE_BYTES:
            sentence = f"{where} has {disk.free_bytes / 1e9:,.1f} GB free."
            findings.append(Finding(Level.WARN, "disk", name, sentence, "Make room, or choose another disk (--run)."))
    if findings:
        return findings
    rate, free = min(disk.bytes_per_second for disk in disks.values()), min(disk.free_bytes for disk in disks.values())
    return [
        passed(
            "disk", f"The run folder takes {rate / 1e6:,.0f} MB/s or more and has {free / 1e9:,.0f} GB free or more."
        )
    ]


def judge_sharing(first: str, seen: Mapping[str, bool]) -> list[Finding]:
    """`seen` tells of each other machine whether it sees the first one's file."""
    blind = [name for name, sees in seen.items() if not sees]
    if not blind:
        return [passed("run folder", "All machines see the same run folder.")] if seen else []
    do = "does" if len(blind) == 1 else "do"
    sentence = f"{list_names(blind)} {do} not see the run folder of {first}: it is not shared."
    return [Finding(Level.WARN, "run folder", blind[0], sentence, REMEDY)]


REMEDY = (
    "The others will send to it. A shared file system or an object store (--run s3://...) would outlive that machine."
)
