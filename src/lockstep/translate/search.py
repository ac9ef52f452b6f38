"""Batched beam search. It knows a model that can take one more step, and nothing of text."""

from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from lockstep.models.packed import Layout
from lockstep.translate.search_settings import SearchSettings


class Cache(Protocol):
    def select(self, hypotheses: Tensor, sentences: Tensor | None) -> None:
        """Keep and reorder hypotheses; keep sentences when some have left the batch."""
        ...


M = TypeVar("M")
C = TypeVar("C", bound=Cache)


class Decodable(Protocol[M, C]):
    """What a model must offer to be decoded: what it knows of the source sentences, what it remembers of each hypothesis
    (which the search reorders), and the scores of one more word."""

    def encode(self, ids: Tensor, layout: Layout) -> M: ...
    def start(self, memory: M, layout: Layout, beam: int) -> list[C]: ...
    def step(self, ids: Tensor, position: int, caches: list[C]) -> Tensor: ...


@torch.inference_mode()
def search(
    model: Decodable[M, C], ids: Tensor, lengths: np.ndarray, settings: SearchSettings, bos: int, eos: int
) -> list[list[int]]:
    """The best translation of every packed source sentence, without its end mark.

    At each step the 2 x beam best continuations are split into those that end and those that go on; the ended ones
    compete by score / length penalty with those that ended before. A sentence leaves the batch when as many hypotheses
    as the beam is wide have ended, or when nothing alive can still win. All bookkeeping is tensor work on `[rows, beam]`.
    """
    device, beam, rows = ids.device, settings.beam, len(lengths)
    layout = Layout.from_lengths(lengths).to(device)
    caches = model.start(model.encode(ids, layout), layout, beam)
    limits = (torch.from_numpy(np.asarray(lengths)) * settings.max_ratio + 10).long().to(device)  # [rows]

    sentence = torch.arange(rows, device=device)  # which input sentence each row is
    alive = torch.full((rows, beam), -torch.inf, device=device)
    alive[:, 0] = 0.0  # all hypotheses start equal: only one may spread
    words = torch.full((rows, beam, 1), bos, device=device)  # [rows, beam, length]
    ended = torch.full((rows, beam), -torch.inf, device=device)
    ended_words = torch.full((rows, beam, 1), eos, device=device)
    results: list[list[int]] = [[] for _ in range(rows)]

    for position in range(int(limits.max())):
        logits = model.step(words[:, :, -1], position, caches).float()
        vocabulary = logits.shape[-1]
        scores = alive.unsqueeze(-1) + logits.log_softmax(-1)  # [rows, beam, vocabulary]
        top, flat = scores.flatten(1).topk(2 * beam, dim=1)  # [rows, 2 * beam]
        origin, word = flat // vocabulary, flat % vocabulary
        longer = torch.cat([words.gather(1, origin.unsqueeze(-1).expand(-1, -1, words.shape[2])), word[..., None]], 2)
        ends = word == eos
        penalty = ((5.0 + position + 1) / 6.0) ** settings.length_penalty

        # Ended: the best `beam` of the old ones and the new ones. Only candidates within the beam may end.
        new = (top / penalty).masked_fill(~ends, -torch.inf)
        new[:, beam:] = -torch.inf
        both = torch.cat([ended, new], dim=1)
        both_words = torch.cat([torch.nn.functional.pad(ended_words, (0, 1), value=eos), longer], dim=1)
        ended, keep = both.topk(beam, dim=1)
        ended_words = both_words.gather(1, keep.unsqueeze(-1).expand(-1, -1, both_words.shape[2]))

        # Alive: the best `beam` continuations that do not end.
        alive, keep = top.masked_fill(ends, -torch.inf).topk(beam, dim=1)
        words = longer.gather(1, keep.unsqueeze(-1).expand(-1, -1, longer.shape[2]))
        origin = origin.gather(1, keep)

        # The best an alive hypothesis can still reach is its score at the longest allowed length.
        bound = alive[:, 0] / ((5.0 + limits) / 6.0) ** settings.length_penalty
        done = (ended[:, 0] > bound) | (ended[:, -1] > -torch.inf) | (position + 1 >= limits)
        hypotheses = (torch.arange(len(sentence), device=device)[:, None] * beam + origin).flatten()
        left: Tensor | None = None
        if bool(done.any()):
            unfinished = ended[:, 0] == -torch.inf  # the limit came first: take the best alive
            best = torch.where(unfinished[:, None], words[:, 0], ended_words[:, 0])
            for row, found in zip(sentence[done].tolist(), best[done].tolist(), strict=True):
                found = found[1:]
                results[row] = found[: found.index(eos)] if eos in found else found
            left = (~done).nonzero().squeeze(1)
            if len(left) == 0:
                break
            sentence, alive, words, limits = sentence[left], alive[left], words[left], limits[left]
            ended, ended_words = ended[left], ended_words[left]
            hypotheses = hypotheses.view(-1, beam)[left].flatten()
        for cache in caches:
            cache.select(hypotheses, left)
    return results
