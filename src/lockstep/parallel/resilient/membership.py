"""Who takes part, where workers come and go: meetings before every step and at the end, and what is told of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockstep.parallel.strategy import Members, QuorumView
from lockstep.run.checkpoint import Progress
from lockstep.run.journal import Journal


@dataclass
class Membership:
    """The workers as one of them meets them."""

    members: Members
    journal: Journal
    size: int  # workers that there could be
    attempt: int
    say: Callable[[str], None]
    participants: tuple[int, ...] = ()  # of the last meeting
    healed: bool = False  # from a peer, which is waiting for this worker's gradients
    ending: str | None = None  # why that peer was about to stop

    def meet(self, progress: Progress, ending: str | None = None) -> QuorumView:
        """Finds out who takes part. The meeting has the progress of a peer when this worker has just healed from it."""
        meeting = self.members.meet(progress, ending)
        for failure in meeting.failures:
            self.journal.write("fault", what="meeting failed", step=progress.step + 1, detail=failure)
        if meeting.progress is not None:
            progress, self.ending, self.healed = meeting.progress, meeting.ending, True
            facts = {"from": meeting.source, "seconds": meeting.seconds, "lineage": progress.lineage}
            self.journal.write("heal", step=progress.step, attempt=self.attempt, **facts)
        renamed = progress.step == 0 and progress.lineage not in ([], self._lineage(progress, meeting))
        if renamed:  # a worker that died before the first step and is back has begun with the others, under this name
            progress.lineage = self._lineage(progress, meeting)
        if renamed or meeting.participants != self.participants:
            self.participants = meeting.participants
            step, names = progress.step + 1, [str(worker) for worker in meeting.participants]
            facts = {"lineage": progress.lineage} if renamed else {}
            self.journal.write("quorum", step=step, participants=meeting.participants, **facts)
            self.say(f"step {step:,}: {len(names)} of {self.size} workers ({', '.join(names)})")
        return meeting

    def branch(self, progress: Progress, meeting: QuorumView) -> dict[str, Any]:
        """Names this start from a checkpoint: alike for all who make it together."""
        progress.lineage = progress.lineage + self._lineage(progress, meeting)
        return {"lineage": progress.lineage}

    def _lineage(self, progress: Progress, meeting: QuorumView) -> list[tuple[str, int]]:
        """Of a start at this meeting."""
        return [(f"{self.attempt}.{meeting.quorum}", progress.step)]

    def close(self) -> None:
        self.members.close()
