"""Counts for `Eval_BLEU_Score`, a metric of an older recipe."""

from collections import Counter

import numpy as np
import torch
from torch import Tensor

from lockstep.models.packed import Layout


class PieceMatches:
    """Counts for `Eval_BLEU_Score`, a metric of an older recipe: BLEU from 0 to 1 over the pieces of teacher-forced argmax
    predictions. It is comparable with the curves of that recipe only."""

    ORDERS = 4

    def __init__(self) -> None:
        self.counts = torch.zeros(
            2 * self.ORDERS + 2, dtype=torch.float64
        )  # matches and predictions of each order, then both lengths

    def add(self, predictions: Tensor, target: Tensor, layout: Layout) -> None:
        """Counts the n-grams of packed predictions `[words]` that occur in their target sentences `[words]`."""
        cuts = np.cumsum(layout.lengths)[:-1]
        pairs = zip(np.split(predictions.cpu().numpy(), cuts), np.split(target.cpu().numpy(), cuts), strict=True)
        for prediction, reference in pairs:
            prediction, reference = prediction[:-1], reference[:-1]  # without the end mark
            self.counts[-2] += len(prediction)
            self.counts[-1] += len(reference)
            for n in range(1, self.ORDERS + 1):
                predicted, expected = _count_ngrams(prediction, n), _count_ngrams(reference, n)
                self.counts[2 * n - 2] += sum(min(count, expected[gram]) for gram, count in predicted.items())
                self.counts[2 * n - 1] += predicted.total()

    @classmethod
    def compute_score(cls, counts: list[float]) -> float:
        """Returns the score for counts that were summed over the workers."""
        precisions = [counts[2 * n] / max(1.0, counts[2 * n + 1]) for n in range(cls.ORDERS)]
        if min(precisions) == 0.0:
            return 0.0
        brevity = min(1.0, float(np.exp(1.0 - counts[-1] / max(1.0, counts[-2]))))
        return brevity * float(np.exp(np.mean(np.log(precisions))))


def _count_ngrams(ids: np.ndarray, n: int) -> Counter[tuple[int, ...]]:
    values = ids.tolist()
    return Counter(tuple(values[i : i + n]) for i in range(len(values) - n + 1))
