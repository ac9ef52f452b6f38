"""The step lines of all workers that stand, as the audit reads them: who computed which share of which batch."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lockstep.run.journal import Line, lines
from lockstep.run.standing import Columns, as_integer, find_standing


class ShareLine(NamedTuple):
    """What one worker's line says about its share of a step."""

    rank: int
    step: int
    part: int | None  # the number of the share, under asynchronous servers only
    attempt: int
    epoch: int  # position in the data after the step
    cursor: int
    batch: str | None  # digest of the global batch
    words: int  # target words of the share
    applied: bool


class OrderDifference(NamedTuple):
    """Something in the journal that contradicts the order of the global batches."""

    step: int
    what: str


@dataclass(frozen=True)
class LaunchFacts:
    """What a launch's `run` line says."""

    workers: int
    strategy: str
    without: tuple[str, ...] = ()  # what an ablation left out


@dataclass
class JournalledShares:
    """The journals of all workers. Where a launch went back to a checkpoint, the steps after it are undone."""

    by_step: dict[int, list[ShareLine]] = field(default_factory=dict)
    launches: dict[int, LaunchFacts] = field(default_factory=dict)  # by attempt
    interruptions: int = 0  # launches that were killed or stopped by a signal, and continued by another one
    undone: int = 0  # steps (of asynchronous workers: shares) that were computed, lost and computed again
    recomputed: int = 0  # shares of workers that died, computed again by worker 0
    is_ended: bool = False  # the last launch stopped by itself or by a signal, and all its lines are written
    last_saved: int = 0  # the step of the last save, or of the checkpoint that the last launch resumed from
    end_step: int = 0  # where the last launch stopped; 0 if it was cut off
    lives: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Of every worker the first and the last step of each life. A worker that comes back starts a new one."""
    damaged: int = 0  # lines that cannot be read
    repeats: list[OrderDifference] = field(default_factory=list)

    @property
    def last_step(self) -> int:
        """The last step that any line speaks of."""
        return max([*self.by_step, self.last_saved, self.end_step])

    def may_lack_lines(self, step: int) -> bool:
        """Whether the run was cut off after this step and before the next save: not all workers have written their line,
        and the next launch computes the step again."""
        return not self.is_ended and step > self.last_saved

    def is_absent(self, rank: int, step: int) -> bool:
        """Whether a worker was dead in this step, or died in it before it wrote its line."""
        return not any(first <= step <= last for first, last in self.lives.get(rank, []))

    @property
    def is_asynchronous(self) -> bool:
        """Whether workers took shares one by one in any step that stands."""
        return any(shares[0].part is not None for shares in self.by_step.values())


@dataclass
class _WorkerFile:
    """One worker's journal, in the order in which it was written."""

    rank: int
    shares: list[ShareLine] = field(default_factory=list)
    branches: list[str | None] = field(default_factory=list)
    events: list[tuple[int, Line]] = field(default_factory=list)  # each with the number of step lines before it
    damaged: int = 0


def read_shares(journal: Path) -> JournalledShares:
    """Reads the journals of all workers in a folder."""
    ranks = sorted(int(path.stem[7:]) for path in journal.glob("worker-*.jsonl") if path.stem[7:].isdigit())
    return join_workers({rank: lines(journal / f"worker-{rank:04d}.jsonl") for rank in ranks})


def join_workers(journals: dict[int, Iterable[Line | None]]) -> JournalledShares:
    """Joins the lines of all workers, by rank; None is a damaged line."""
    files = [_sort_lines(rank, journals[rank]) for rank in sorted(journals)]
    result = JournalledShares(damaged=sum(file.damaged for file in files))
    undone = list[list[ShareLine]]()
    for file in files:
        others = [line for other in files if other is not file for _, line in other.events]
        standing = set(_find_standing(file, others))
        for index in sorted(standing):
            share = file.shares[index]
            result.by_step.setdefault(share.step, []).append(share)
        undone.append([share for index, share in enumerate(file.shares) if index not in standing])
        result.repeats += _find_repeats(file)
        result.lives[file.rank] = _find_lives(file)
    last = max(result.by_step, default=0)
    counts = [sum(share.step <= last for share in shares) for shares in undone]
    result.undone = sum(counts) if result.is_asynchronous else max(counts, default=0)
    _add_events(result, files)
    return result


def _sort_lines(rank: int, journal: Iterable[Line | None]) -> _WorkerFile:
    file = _WorkerFile(rank)
    for line in journal:
        try:
            if line is None:
                raise ValueError
            if line["kind"] == "step":
                file.shares.append(_read_share(rank, line))
                file.branches.append(line.get("branch"))
            else:
                file.events.append((len(file.shares), line))
        except (ValueError, KeyError, TypeError):
            file.damaged += 1
    return file


def _read_share(rank: int, line: Line) -> ShareLine:
    part, batch = line.get("part"), line.get("batch")
    return ShareLine(
        rank,
        int(line["step"]),
        None if part is None else int(part),
        int(line.get("attempt", 1)),
        int(line["epoch"]),
        int(line["cursor"]),
        None if batch is None else str(batch),
        int(line["words"]["target"]),
        bool(line.get("applied", True)),
    )


def _find_standing(file: _WorkerFile, other_events: Iterable[Line]) -> list[int]:
    rows = [(share.step, share.part or 0, share.attempt) for share in file.shares]
    step, part, attempt = np.array(rows, np.float64).reshape(-1, 3).T
    branches = file.branches if any(file.branches) else []
    return find_standing(Columns(step, part, attempt, branches), file.events, other_events).tolist()


def _find_repeats(file: _WorkerFile) -> list[OrderDifference]:
    """Finds steps that a worker computed again although it had not gone back to a checkpoint or to a peer's state."""
    origins = [(0, 0)]  # from this line on, the worker continues after this step
    for count, line in file.events:
        if line["kind"] in ("resume", "heal"):
            origins.append((count, as_integer(line.get("step")) or 0))
    repeats = []
    for (begin, origin), (end, _) in zip(origins, [*origins[1:], (len(file.shares), 0)], strict=True):
        seen = set[tuple[int, int | None]]()
        for share in file.shares[begin:end]:
            key = (share.step, share.part)
            if key in seen or share.step <= origin:
                what = f"worker {file.rank} computed it twice without going back to a checkpoint"
                repeats.append(OrderDifference(share.step, what))
            seen.add(key)
    return repeats


def _find_lives(file: _WorkerFile) -> list[tuple[int, int]]:
    """Returns the first and the last step between two starts of a worker, or two copies of a peer's state."""
    starts = [count for count, line in file.events if line["kind"] in ("run", "resume", "heal")]
    cuts = sorted({0, *starts, len(file.shares)})
    lives = (file.shares[begin:end] for begin, end in pairwise(cuts))
    return [(shares[0].step, shares[-1].step) for shares in lives]


def _add_events(result: JournalledShares, files: list[_WorkerFile]) -> None:
    """Adds what the events say about launches, saves and ends."""
    for file in files:
        for _, line in file.events:
            if line["kind"] == "run":
                workers, without = as_integer(line.get("workers")) or 1, tuple(line.get("without") or ())
                facts = LaunchFacts(workers, str(line.get("strategy", "")), without)
                result.launches[as_integer(line.get("attempt")) or 1] = facts
            elif line["kind"] == "fault" and str(line.get("what", "")).startswith("recomputed"):
                result.recomputed += 1
    last_attempt = max(result.launches, default=1)
    result.last_saved = max((_find_last_saved(file, last_attempt) for file in files), default=0)
    reasons = _list_ends(files[0]) if files else []
    result.interruptions = sum(reason in (None, "signal", "max_hours") for reason in reasons[:-1])
    result.is_ended = bool(reasons) and reasons[-1] is not None
    if result.is_ended:
        result.end_step = max(as_integer(line.get("step")) or 0 for line in _select(files[0], "stop")[-1:])


def _select(file: _WorkerFile, kind: str) -> list[Line]:
    return [line for _, line in file.events if line["kind"] == kind]


def _find_last_saved(file: _WorkerFile, last_attempt: int) -> int:
    """Returns the step of the last save or resume in a worker's journal; 0 if it did not take part in the last launch."""
    launches = _select(file, "run")
    if not launches or (as_integer(launches[-1].get("attempt")) or 1) != last_attempt:
        return 0
    saves = [line for _, line in file.events if line["kind"] in ("checkpoint", "resume")]
    return as_integer(saves[-1].get("step")) or 0 if saves else 0


def _list_ends(file: _WorkerFile) -> list[str | None]:
    """Returns why each launch stopped by a worker's journal; None when it was killed or still runs. A worker that came
    back within a launch starts no new one."""
    ends, attempts = list[str | None](), list[int | None]()
    for _, line in file.events:
        if line["kind"] == "run":
            attempt = as_integer(line.get("attempt"))
            if not attempts or attempts[-1] != attempt:
                attempts.append(attempt)
                ends.append(None)
        elif line["kind"] == "stop" and ends:
            ends[-1] = str(line.get("reason") or "")
    return ends
