"""Batched beam search over any model that can compute the logits of one more word."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lockstep.models import decoding, kernels
from lockstep.models.packed import Layout
from lockstep.translate.search_engine import Hypothesis, find_limits
from lockstep.translate.search_settings import SearchSettings


class Cache(Protocol):
    """What a model carries from one decoding step to the next."""

    def select(self, hypotheses: Tensor, sentences: Tensor | None) -> None:
        """Keeps and reorders these hypotheses, and keeps these sentences when some have left the batch."""
        ...


M = TypeVar("M")
C = TypeVar("C", bound=Cache)


class Decodable(Protocol[M, C]):
    """A model that can be decoded: it encodes packed source sentences, starts a cache for each group of hypotheses, and
    computes the logits of the next word from the last one."""

    def encode(self, ids: Tensor, layout: Layout) -> M: ...
    def start(self, memory: M, layout: Layout, beam: int) -> list[C]: ...
    def step(self, ids: Tensor, position: int, caches: list[C]) -> Tensor: ...


@torch.inference_mode()
def search(
    model: Decodable[M, C],
    ids: Tensor,
    lengths: np.ndarray,
    settings: SearchSettings,
    bos: int,
    eos: int,
    on_position: Callable[[int], None] = lambda done: None,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """Returns the `n_best` translations of every packed source sentence, the best first; fewer if fewer ended.

    A sentence leaves the batch when it is done, so that later steps compute only the others. `on_position` is called after
    each position with the number of sentences that are done; it may raise to end the search. Where a GPU's memory does not
    suffice, the sentences are translated in halves.
    """
    try:
        return _search(model, ids, lengths, settings, bos, eos, on_position, n_best)
    except torch.OutOfMemoryError:
        if len(lengths) == 1:
            raise
    torch.cuda.empty_cache()  # not while the exception keeps tensors alive
    half = len(lengths) // 2
    words = int(lengths[:half].sum())
    results = search(model, ids[:words], lengths[:half], settings, bos, eos, on_position, n_best)
    on_rest = lambda done: on_position(half + done)  # noqa: E731
    return results + search(model, ids[words:], lengths[half:], settings, bos, eos, on_rest, n_best)


def _search(
    model: Decodable[M, C],
    ids: Tensor,
    lengths: np.ndarray,
    settings: SearchSettings,
    bos: int,
    eos: int,
    on_position: Callable[[int], None],
    n_best: int,
) -> list[list[Hypothesis]]:
    layout = Layout.from_lengths(lengths).to(ids.device)
    caches = model.start(model.encode(ids, layout), layout, settings.beam)
    beams = _Beams.start(lengths, settings, bos, eos, ids.device, n_best)
    results: list[list[Hypothesis]] = [[] for _ in range(len(lengths))]
    for position in range(int(beams.limits.max())):
        logits = model.step(beams.words[:, :, -1], position, caches)  # [rows, beam, vocabulary]
        hypotheses = beams.extend(logits)  # [rows, beam]
        is_done = beams.are_done()
        remaining: Tensor | None = None
        if bool(is_done.any()):
            for sentence, best in beams.list_best(is_done):
                results[sentence] = best
            remaining = (~is_done).nonzero().squeeze(1)
            if len(remaining) == 0:
                break
            beams.select(remaining)
            hypotheses = hypotheses[remaining]
        for cache in caches:
            cache.select(hypotheses.flatten(), remaining)
        on_position(len(lengths) - len(beams.sentences))
    return results


@dataclass
class _Beams:
    """The hypotheses of every sentence in the batch, from the best to the worst. A row is a sentence, a score is the sum
    of the log-probabilities of its words; scores of ended hypotheses are divided by the length penalty."""

    sentences: Tensor  # [rows] which input sentence a row is
    limits: Tensor  # [rows] the most words a translation may have, with its end mark
    scores: Tensor  # [rows, beam] of the hypotheses that have not ended
    words: Tensor  # [rows, beam, 1 + length] their words, after the begin mark
    ended_scores: Tensor  # [rows, beam] -inf where fewer have ended
    ended_words: Tensor  # [rows, beam, 1 + length] padded with end marks
    settings: SearchSettings
    eos: int
    n_best: int

    @classmethod
    def start(
        cls, lengths: np.ndarray, settings: SearchSettings, bos: int, eos: int, device: torch.device, n_best: int
    ) -> "_Beams":
        rows, beam = len(lengths), settings.beam
        scores = torch.full((rows, beam), -torch.inf, device=device)
        scores[:, 0] = 0.0  # all hypotheses start equal, so only one of them may branch
        return cls(
            sentences=torch.arange(rows, device=device),
            limits=torch.from_numpy(find_limits(lengths, settings)).to(device),
            scores=scores,
            words=torch.full((rows, beam, 1), bos, device=device),
            ended_scores=torch.full((rows, beam), -torch.inf, device=device),
            ended_words=torch.full((rows, beam, 1), eos, device=device),
            settings=settings,
            eos=eos,
            n_best=n_best,
        )

    @property
    def length(self) -> int:
        """The words of a hypothesis so far, without the begin mark."""
        return self.words.shape[2] - 1

    def extend(self, logits: Tensor) -> Tensor:
        """Adds a word to every hypothesis. Returns `[rows, beam]`: the flat index, row * beam + place, of the hypothesis
        that each one extends.

        The 2 * beam best continuations are divided into those that end and those that do not. Both keep their best
        `beam`; those that end compete with those that ended before.
        """
        rows, beam, vocabulary = logits.shape
        top, flat = self._find_best(logits, 2 * beam)  # [rows, 2 * beam]
        origin, word = flat // vocabulary, flat % vocabulary
        words = torch.cat([_take_rows(self.words, origin), word[..., None]], dim=2)  # [rows, 2 * beam, 1 + length]
        ends = word == self.eos
        self._merge_ended(top, words, ends)
        self.scores, best = top.masked_fill(ends, -torch.inf).topk(beam, dim=1)
        self.words = _take_rows(words, best)
        return torch.arange(rows, device=logits.device)[:, None] * beam + origin.gather(1, best)

    def _find_best(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
        if decoding.are_kernels_used(logits) and logits.dtype in kernels.HALF:
            return decoding.find_best_words(logits, self.scores, count)
        scores = self.scores.unsqueeze(-1) + logits.float().log_softmax(-1)  # [rows, beam, vocabulary]
        return scores.flatten(1).topk(count, dim=1)

    def _merge_ended(self, scores: Tensor, words: Tensor, ends: Tensor) -> None:
        """Keeps the best `beam` of the old and the new ended hypotheses. Only continuations within the beam may end."""
        beam, length = self.settings.beam, words.shape[2] - 1
        new_scores = self._penalize(scores, length).masked_fill(~ends, -torch.inf)
        new_scores[:, beam:] = -torch.inf
        all_words = torch.cat([F.pad(self.ended_words, (0, 1), value=self.eos), words], dim=1)
        self.ended_scores, best = torch.cat([self.ended_scores, new_scores], dim=1).topk(beam, dim=1)
        self.ended_words = _take_rows(all_words, best)

    def are_done(self) -> Tensor:
        """Returns `[rows]`: true when `beam` hypotheses have ended, when no other can be among the `n_best`, or at the
        limit."""
        # The best score that a hypothesis can still reach is its current one with the penalty of the longest length.
        best_possible = self._penalize(self.scores[:, 0], self.limits)
        is_full = self.ended_scores[:, -1] > -torch.inf
        return (self.ended_scores[:, self.n_best - 1] > best_possible) | is_full | (self.length >= self.limits)

    def list_best(self, rows: Tensor) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yields the sentence and the best translations of each selected row; unfinished ones where too few ended."""
        unfinished = self._penalize(self.scores, self.length)
        scores = torch.cat([self.ended_scores, unfinished], dim=1)[rows].tolist()
        words = torch.cat([self.ended_words, self.words], dim=1)[rows].tolist()
        for sentence, row_scores, row_words in zip(self.sentences[rows].tolist(), scores, words, strict=True):
            candidates = [
                Hypothesis(ids[1 : ids.index(self.eos, 1)] if self.eos in ids[1:] else ids[1:], score)
                for ids, score in zip(row_words, row_scores, strict=True)
                if score > -torch.inf
            ]
            yield sentence, candidates[: self.n_best]

    def select(self, rows: Tensor) -> None:
        """Keeps these rows."""
        self.sentences, self.limits = self.sentences[rows], self.limits[rows]
        self.scores, self.words = self.scores[rows], self.words[rows]
        self.ended_scores, self.ended_words = self.ended_scores[rows], self.ended_words[rows]

    def _penalize(self, scores: Tensor, length: Tensor | int) -> Tensor:
        """Divides by the penalty of a translation of `length` words, with its end mark."""
        if self.settings.normalise == "gnmt":
            return scores / ((5.0 + length) / 6.0) ** self.settings.length_penalty
        return scores / length**self.settings.length_penalty


def _take_rows(values: Tensor, index: Tensor) -> Tensor:
    """`[rows, n, length]` and `[rows, k]` -> `[rows, k, length]`."""
    return values.gather(1, index.unsqueeze(-1).expand(-1, -1, values.shape[2]))
