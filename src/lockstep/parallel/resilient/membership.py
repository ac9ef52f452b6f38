"""Journals who takes part in the steps, and names the branches of a run that started again from a checkpoint."""

from dataclasses import dataclass, field

from lockstep.parallel.strategy import Context
from lockstep.run.checkpoint import Progress

Lineage = list[tuple[str, int]]


@dataclass(frozen=True)
class QuorumView:
    """What this worker knows after a quorum was formed."""

    quorum: int  # a number that all participants share
    participants: tuple[int, ...]  # workers
    regrouped: bool  # a worker came or went, or an exchange failed, since the last quorum
    failures: list[str] = field(default_factory=list)  # why earlier attempts to form it failed
    seconds: float = 0.0
    progress: Progress | None = None  # of the peer whose state this worker has just copied
    source: int | None = None  # that peer
    peer_stop_reason: str | None = None  # why it was about to stop


@dataclass
class Membership:
    context: Context
    participants: tuple[int, ...] = ()  # of the last quorum

    def note(self, view: QuorumView, progress: Progress) -> None:
        """Journals a quorum. `progress` is where this worker stood before it."""
        context, journal = self.context, self.context.journal
        assert journal is not None
        for failure in view.failures:
            journal.write("fault", what="quorum failed", step=progress.step + 1, detail=failure)
        if view.progress is not None:
            progress = view.progress
            journal.write(
                "heal",
                step=progress.step,
                attempt=context.attempt,
                **{"from": view.source},
                seconds=view.seconds,
                lineage=progress.lineage,
            )
        # A worker that died before the first step and is back started with the others, under their branch's name.
        own_branch = self._lineage(progress, view.quorum)
        renamed = progress.step == 0 and progress.lineage not in ([], own_branch)
        if renamed:
            progress.lineage = own_branch
        if renamed or view.participants != self.participants:
            self.participants = view.participants
            step, names = progress.step + 1, [str(worker) for worker in view.participants]
            lineage = {"lineage": progress.lineage} if renamed else {}
            journal.write("quorum", step=step, participants=view.participants, **lineage)
            context.notify(f"step {step:,}: {len(names)} of {context.team.size} workers ({', '.join(names)})")

    def start_branch(self, progress: Progress, quorum: int) -> dict[str, Lineage]:
        """Adds this start from a checkpoint to the lineage. All workers that start together give it the same name."""
        progress.lineage = progress.lineage + self._lineage(progress, quorum)
        return {"lineage": progress.lineage}

    def _lineage(self, progress: Progress, quorum: int) -> Lineage:
        """Returns the branch that starts at this progress with this quorum."""
        return [(f"{self.context.attempt}.{quorum}", progress.step)]
