"""Which evaluation of a run is the best: the score decides, then the loss, then the earlier step."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Evaluation:
    """What one evaluation measured, as far as it decides which one is the best."""

    step: int
    score: float
    loss: float | None = None  # None: the task reports no loss, or it was not stored

    def rank(self, higher_is_better: bool) -> tuple[float, float, int]:
        """A sort key: the better of two evaluations has the smaller one. A score that is not finite loses against every
        finite score. Of equal scores, one without a finite loss loses against one with it."""
        score = -self.score if higher_is_better else self.score
        return _finite_or_last(score), _finite_or_last(self.loss), self.step

    def has_better_score_than(self, other: "Evaluation", higher_is_better: bool) -> bool:
        """Compares the scores alone. Patience counts evaluations without such a gain."""
        return self.rank(higher_is_better)[0] < other.rank(higher_is_better)[0]

    def is_better_than(self, other: "Evaluation", higher_is_better: bool) -> bool:
        return self.rank(higher_is_better) < other.rank(higher_is_better)


def find_best(evaluations: Iterable[Evaluation], higher_is_better: bool) -> Evaluation | None:
    """The best evaluation, or None when there is none."""
    return min(evaluations, key=lambda evaluation: evaluation.rank(higher_is_better), default=None)


def _finite_or_last(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else math.inf
