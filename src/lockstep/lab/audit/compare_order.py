"""Compares the journal with the order of the global batches, step by step, and counts how often each sample was used."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field

import numpy as np

from lockstep.lab.audit.share_lines import JournalledShares, OrderDifference, ShareLine
from lockstep.tasks.task import GlobalBatch


@dataclass(frozen=True)
class PassUse:
    """How often the samples of one pass over the data were used."""

    number: int  # from 1
    first_step: int
    last_step: int
    launches: tuple[int, ...]
    is_complete: bool  # its last batch was reached
    once: int  # samples that were used once
    never: int  # in the steps that were taken and should have used them; of a complete pass, of all samples
    more: int
    skipped: int  # samples of steps whose gradient was not finite, so that they changed nothing


@dataclass
class Audit:
    """The result: what the journal proves, and what contradicts it."""

    samples: int  # in one pass
    steps: int
    passes: list[PassUse] = field(default_factory=list)
    differences: list[OrderDifference] = field(default_factory=list)
    open_steps: int = 0  # at the end of a run that was cut off, not journalled by all workers
    partial_steps: int = 0  # of elastic workers: one died after the update and before its line
    skipped_steps: int = 0  # their gradient was not finite

    @property
    def complete_passes(self) -> list[PassUse]:
        return [one for one in self.passes if one.is_complete]

    @property
    def is_clean(self) -> bool:
        return not self.differences


@dataclass(frozen=True)
class StepCheck:
    """What the lines of one step prove."""

    problems: Sequence[str] = ()
    is_open: bool = False  # lines are missing because the run was cut off; it will be computed again
    is_partial: bool = False  # a worker died after the update and before its line


def audit(journalled: JournalledShares, batches: Iterable[GlobalBatch], samples: int) -> Audit:
    """Compares the journal with the batches, of which the first one is that of step 1. A pass has `samples` samples."""
    result = Audit(samples, journalled.last_step, differences=list(journalled.repeats))
    current = _OpenPass(1)
    for step, batch in zip(range(1, journalled.last_step + 1), batches, strict=False):
        shares = journalled.by_step.get(step, [])
        check = _check_step(journalled, step, shares, batch)
        result.differences += [OrderDifference(step, what) for what in check.problems]
        result.open_steps += check.is_open
        result.partial_steps += check.is_partial
        result.skipped_steps += any(not share.applied for share in shares)
        current.add(step, batch, shares, check)
        if batch.after.cursor == 0:
            result.passes.append(current.close(samples, is_complete=not current.has_open_step))
            current = _OpenPass(step + 1)
    if current.indices:
        result.passes.append(current.close(samples, is_complete=False))
    for one in result.complete_passes:
        is_explained = any(one.first_step <= step <= one.last_step for step, _ in result.differences)
        if one.more or (one.never and not is_explained):
            what = f"pass {one.number} used {one.never:,} samples never and {one.more:,} more than once"
            result.differences.append(OrderDifference(one.last_step, what))
    result.differences.sort()
    return result


def _check_step(journalled: JournalledShares, step: int, shares: Sequence[ShareLine], batch: GlobalBatch) -> StepCheck:
    """Checks the position, the batch and the shares of one step."""
    if not shares:
        is_open = journalled.may_lack_lines(step) and journalled.is_asynchronous
        return StepCheck(is_open=True) if is_open else StepCheck(["no worker has a line for it"])
    problems = []
    for share in shares:
        if (share.epoch, share.cursor) != (batch.after.epoch, batch.after.cursor):
            place, right = _describe_place(share.epoch, share.cursor), _describe_place(*astuple(batch.after))
            problems.append(f"worker {share.rank} was at {place} after it instead of {right}")
        elif share.batch not in (None, batch.digest):
            problems.append(f"worker {share.rank} had batch {share.batch} instead of {batch.digest}")
    if len({share.attempt for share in shares}) > 1:
        problems.append("its lines are of different launches")
    return StepCheck(problems) if problems else _check_shares(journalled, step, shares, batch)


def _check_shares(
    journalled: JournalledShares, step: int, shares: Sequence[ShareLine], batch: GlobalBatch
) -> StepCheck:
    """Checks that the shares are all there, each once, and together have the words of the batch."""
    launch = journalled.launches.get(shares[0].attempt)
    numbers = [share.rank if share.part is None else share.part for share in shares]
    missing = set(range(launch.workers if launch is not None else 1)) - set(numbers)
    words, noun = sum(share.words for share in shares), "worker" if shares[0].part is None else "share"
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if twice:
        return StepCheck([f"{noun} {number} was computed by {numbers.count(number)} workers" for number in twice])
    if launch is not None and launch.strategy == "resilient" and words <= batch.target_words:
        missing = {rank for rank in missing if not journalled.is_absent(rank, step)}
        if len(numbers) < launch.workers and not missing:
            return StepCheck(is_partial=words < batch.target_words)
    if missing and journalled.may_lack_lines(step):
        return StepCheck(is_open=True)
    if missing:
        return StepCheck([f"{noun} {number} has no line" for number in sorted(missing)])
    return StepCheck() if words == batch.target_words else StepCheck([_describe_words(words, batch)])


def _describe_place(epoch: int, cursor: int) -> str:
    return f"pass {epoch + 1}, batch {cursor}"


def _describe_words(words: int, batch: GlobalBatch) -> str:
    return f"all workers together had {words:,} target words instead of {batch.target_words:,}"


@dataclass
class _OpenPass:
    """A pass whose batches are still being counted."""

    first_step: int
    last_step: int = 0
    number: int = 1
    indices: list[np.ndarray] = field(default_factory=list)
    proven: list[np.ndarray] = field(default_factory=list)
    launches: set[int] = field(default_factory=set)
    skipped: int = 0
    has_open_step: bool = False

    def add(self, step: int, batch: GlobalBatch, shares: Sequence[ShareLine], check: StepCheck) -> None:
        if check.is_open:
            self.has_open_step = True
            return
        self.last_step = step
        self.number = batch.after.epoch + (batch.after.cursor > 0)
        self.indices.append(batch.indices)
        self.launches |= {share.attempt for share in shares}
        if not check.problems:
            self.proven.append(batch.indices)
            self.skipped += len(batch.indices) * any(not share.applied for share in shares)

    def close(self, samples: int, is_complete: bool) -> PassUse:
        used = np.bincount(_join(self.proven), minlength=samples)
        due = np.ones(samples, bool) if is_complete else np.bincount(_join(self.indices), minlength=samples) > 0
        never, more = int((due & (used[:samples] == 0)).sum()), int((used > 1).sum())
        launches = tuple(sorted(self.launches))
        once = int((used == 1).sum())
        return PassUse(
            self.number, self.first_step, self.last_step, launches, is_complete, once, never, more, self.skipped
        )


def _join(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
