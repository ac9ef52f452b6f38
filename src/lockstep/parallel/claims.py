"""How the global batches of the steps to come are dealt to workers that move step by step together."""

from collections.abc import Iterator

from lockstep.parallel.strategy import B, BatchSplitter, Claim
from lockstep.team import Team


def shares_of_all(order: BatchSplitter[B], batches: Iterator[B], first: int, team: Team) -> Iterator[Claim[B]]:
    """A share of every batch, whose gradient is one summand of the batch's."""
    for step, batch in enumerate(batches, first):
        yield Claim(step, batch, order.share(batch, team.rank, team.size), batch.target_words, team.rank)


def shares_alone(order: BatchSplitter[B], batches: Iterator[B], first: int, team: Team) -> Iterator[Claim[B]]:
    """A share of every batch, which is this worker's batch."""
    for step, batch in enumerate(batches, first):
        share = order.share(batch, team.rank, team.size)
        yield Claim(step, batch, share, max(1, order.target_words(share)), team.rank)
