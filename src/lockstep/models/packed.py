"""Sentences laid end to end without padding, and the grid that attention needs.

Every layer but attention treats words one by one, so they see one long list of real words, `[words, width]`. Attention
alone needs sentences side by side, `[sentences, longest, width]`; the words move there and back by their slots.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

MOST_PARTS, LEAST_WORDS, SHORTER = 6, 400, 0.8
"""A batch is computed in at most so many parts, each of at least so many words (source and target together), because every
part costs calls of its own; a part begins with a sentence that is shorter than the first of the part before by this
factor. Tuned on CPU with benchmarks/attention.py."""


@dataclass
class Layout:
    """Where each packed word stands on the grid of its batch."""

    rows: int
    longest: int
    lengths: np.ndarray  # [rows]
    positions: Tensor  # [words] place of the word in its sentence
    slots: Tensor | None  # [words] row * longest + position; None when all sentences have the same length
    hidden: Tensor | None  # [rows, 1, 1, longest] 0 where a word is and -inf where none is; None likewise
    bounds: Tensor  # [rows + 1] int32, where each sentence begins in the packed list, and where the last one ends
    parts: tuple["Layout", ...] = ()  # of sentences that follow each other, on smaller grids; none: this grid is enough

    @classmethod
    def of(cls, lengths: np.ndarray, cuts: Sequence[int] = ()) -> "Layout":
        """`cuts`: rows at which parts begin, but for the first."""
        layout = cls._whole(lengths)
        layout.parts = tuple(cls._whole(part) for part in np.split(lengths, cuts)) if len(cuts) else ()
        return layout

    @classmethod
    def _whole(cls, lengths: np.ndarray) -> "Layout":
        rows, longest, words = len(lengths), int(lengths.max()), int(lengths.sum())
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        positions = np.arange(words) - starts
        slots = hidden = None
        if words < rows * longest:
            slots = torch.from_numpy(np.repeat(np.arange(rows) * longest, lengths) + positions)
            outside = np.arange(longest)[None, :] >= np.asarray(lengths)[:, None]
            hidden = torch.from_numpy(np.where(outside, -np.inf, 0.0).astype(np.float32))[:, None, None, :]
        bounds = np.zeros(rows + 1, np.int32)
        np.cumsum(lengths, out=bounds[1:])
        return cls(
            rows,
            longest,
            np.asarray(lengths, np.int64),
            torch.from_numpy(positions),
            slots,
            hidden,
            torch.from_numpy(bounds),
        )

    def map(self, move: Callable[[Tensor], Tensor]) -> "Layout":
        """The same layout with every tensor moved."""
        slots = None if self.slots is None else move(self.slots)
        hidden = None if self.hidden is None else move(self.hidden)
        parts = tuple(part.map(move) for part in self.parts)
        places = move(self.positions), slots, hidden, move(self.bounds)
        return Layout(self.rows, self.longest, self.lengths, *places, parts)

    @property
    def words(self) -> int:
        return len(self.positions)

    def to(self, device: torch.device) -> "Layout":
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def spread(self, packed: Tensor) -> Tensor:
        """`[words, width]` -> `[rows, longest, width]`, zero where no word is."""
        if self.slots is not None:
            packed = _Spread.apply(packed, self.slots, self.rows * self.longest)  # type: ignore[no-untyped-call]
        return packed.view(self.rows, self.longest, packed.shape[-1])

    def pack(self, grid: Tensor) -> Tensor:
        """`[rows, longest, width]` -> `[words, width]`."""
        flat = grid.reshape(self.rows * self.longest, grid.shape[-1])
        return flat if self.slots is None else _Pack.apply(flat, self.slots)  # type: ignore[no-untyped-call]


@dataclass
class AttentionGrid:
    """The words of a batch as recurrent kernels read them (torch's packed sequences): the first words of all sentences,
    then all second words and so on, each time from the longest sentence to the shortest."""

    order: Tensor  # [words] where each stands in the packed list
    slots: Tensor  # [words] where each stands on the grid
    counts: Tensor  # [longest] sentences that have a word at this place; on CPU, where torch wants it
    rows: Tensor  # [rows] sentences from the longest to the shortest
    layout: Layout

    @classmethod
    def of(cls, layout: Layout, device: torch.device) -> "AttentionGrid":
        rows = np.argsort(-layout.lengths, kind="stable")
        places = np.arange(layout.longest)[:, None]
        there = places < layout.lengths[rows]  # [longest, rows]
        order = (places + (np.cumsum(layout.lengths) - layout.lengths)[rows])[there]
        slots = (places + rows * layout.longest)[there]
        counts = torch.from_numpy(there.sum(1))
        indices = [torch.from_numpy(index) for index in (order, slots, rows)]
        if device.type == "cuda":  # from pinned memory, or the copy would wait for what the device is doing
            indices = [index.pin_memory().to(device, non_blocking=True) for index in indices]
        return cls(indices[0], indices[1], counts, indices[2], layout)

    def spread(self, words: Tensor) -> Tensor:
        """`[words, width]` in this order -> `[rows, longest, width]`, zero where no word is."""
        places = self.layout.rows * self.layout.longest
        grid = _Spread.apply(words, self.slots, places)  # type: ignore[no-untyped-call]
        return grid.view(self.layout.rows, self.layout.longest, words.shape[1])

    def gather(self, grid: Tensor) -> Tensor:
        """`[rows, longest, width]` -> `[words, width]` in this order."""
        gathered: Tensor = _Pack.apply(grid.flatten(0, 1), self.slots)  # type: ignore[no-untyped-call]
        return gathered

    def pack(self, words: Tensor) -> Tensor:
        """`[words, width]` from this order back to that of the packed list."""
        packed: Tensor = _Spread.apply(words, self.order, len(words))  # type: ignore[no-untyped-call]
        return packed

    def sorted(self, states: Tensor) -> Tensor:
        """`[..., rows, width]` from the longest sentence to the shortest."""
        return states.index_select(-2, self.rows)

    def unsorted(self, states: Tensor) -> Tensor:
        """`[..., rows, width]` in the order of the batch again."""
        return states.index_select(-2, self.rows.argsort())


def cuts(*lengths: np.ndarray) -> list[int]:
    """Where to cut sentences that are sorted from long to short, so that each part's grid has little room for nothing.
    Several lengths of the same sentences (source and target) are cut alike."""
    total = np.sum(lengths, axis=0)
    left, found = int(total.sum()), list[int]()
    enough = max(left / MOST_PARTS, LEAST_WORDS)
    begin, words = 0, 0
    for row, length in enumerate(total.tolist()):
        if words >= enough and left >= LEAST_WORDS and length <= SHORTER * total[begin]:
            found.append(row)
            begin, words = row, 0
        words, left = words + length, left - length
    return found


class _Spread(torch.autograd.Function):
    """Slots are unique, so each direction is a plain copy and the backward of one is the forward of the other.

    Autograd's own backward of `index_select` has to add, since it can't know that.
    """

    @staticmethod
    def forward(ctx, packed: Tensor, slots: Tensor, size: int) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(slots)
        return packed.new_zeros(size, packed.shape[1]).index_copy_(0, slots, packed)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[no-untyped-def]
        return grad.index_select(0, ctx.saved_tensors[0]), None, None


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, grid: Tensor, slots: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(slots)
        ctx.size = grid.shape[0]
        return grid.index_select(0, slots)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[no-untyped-def]
        return grad.new_zeros(ctx.size, grad.shape[1]).index_copy_(0, ctx.saved_tensors[0], grad), None
