"""Packed batches: sentences laid end to end without padding.

Every layer except attention treats words one by one, so it sees one list of real words, `[words, width]`. Attention on
CPU, and on GPUs without a variable-length kernel, needs padded sentences, `[rows, longest, width]`. `Layout` converts
between the two. A row is one sentence of the batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

MAX_PARTS, MIN_PART_WORDS, PART_LENGTH_RATIO = 6, 400, 0.8
"""How `choose_cuts` divides a batch: at most this many parts, each of at least this many words (source and target
together), because every part launches its own kernels. A new part begins with a sentence that is shorter than the first
one of the current part by this factor. Tuned on CPU with benchmarks/attention.py."""


@dataclass
class Layout:
    """Where each word of a packed batch stands in its sentence, and in the padded batch."""

    rows: int
    longest: int
    lengths: np.ndarray  # [rows]
    positions: Tensor  # [words] position of the word in its sentence
    padded_index: Tensor | None  # [words] row * longest + position; None when all sentences have the same length
    padding_mask: (
        Tensor | None
    )  # [rows, 1, 1, longest] 0 for a word and -inf for padding; None when there is no padding
    offsets: Tensor  # [rows + 1] int32, the cumulative lengths: sentence i is packed[offsets[i] : offsets[i + 1]]
    parts: tuple["Layout", ...] = ()  # consecutive sentences that attention pads separately; empty: all in one piece
    device_mask: Tensor | None = None  # padding_mask in the format of the products of a device

    @classmethod
    def from_lengths(cls, lengths: np.ndarray, cuts: Sequence[int] = ()) -> "Layout":
        """Returns the layout of packed sentences of these lengths. `cuts` are the rows at which a new part begins."""
        layout = cls._without_parts(lengths)
        layout.parts = tuple(cls._without_parts(part) for part in np.split(lengths, cuts)) if len(cuts) else ()
        return layout

    @classmethod
    def _without_parts(cls, lengths: np.ndarray) -> "Layout":
        rows, longest, words = len(lengths), int(lengths.max()), int(lengths.sum())
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)  # [words]
        positions = np.arange(words) - starts
        padded_index = padding_mask = None
        if words < rows * longest:
            padded_index = torch.from_numpy(np.repeat(np.arange(rows) * longest, lengths) + positions)
            is_padding = np.arange(longest)[None, :] >= np.asarray(lengths)[:, None]  # [rows, longest]
            padding_mask = torch.from_numpy(np.where(is_padding, -np.inf, 0.0).astype(np.float32))[:, None, None, :]
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return cls(
            rows,
            longest,
            np.asarray(lengths, np.int64),
            torch.from_numpy(positions),
            padded_index,
            padding_mask,
            torch.from_numpy(offsets),
        )

    def map(self, move: Callable[[Tensor], Tensor]) -> "Layout":
        """Returns the same layout with `move` applied to every tensor."""
        padded_index = None if self.padded_index is None else move(self.padded_index)
        padding_mask = None if self.padding_mask is None else move(self.padding_mask)
        parts = tuple(part.map(move) for part in self.parts)
        tensors = move(self.positions), padded_index, padding_mask, move(self.offsets)
        return Layout(self.rows, self.longest, self.lengths, *tensors, parts)

    @property
    def words(self) -> int:
        return len(self.positions)

    def join_parts(self) -> "Layout":
        """Returns the layout in one piece, for devices: there it costs more to start kernels for every part than to pad."""
        return replace(self, parts=()) if self.parts else self

    def get_mask(self, query: Tensor) -> Tensor | None:
        """Returns the padding mask for attention with this query. On a device it has the query's format, made once for all
        layers, and rows that begin at multiples of 16 values, which torch's kernels need and would copy it for."""
        mask = self.padding_mask
        if mask is None or query.device.type == "cpu":
            return mask
        if self.device_mask is None or self.device_mask.dtype != query.dtype:
            self.device_mask = align_mask(mask, query.dtype)
        return self.device_mask

    def to(self, device: torch.device) -> "Layout":
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def pad(self, packed: Tensor) -> Tensor:
        """`[words, width]` -> `[rows, longest, width]`. Padding is zero."""
        if self.padded_index is not None:
            packed = _scatter(packed, self.padded_index, self.rows * self.longest)
        return packed.view(self.rows, self.longest, packed.shape[-1])

    def pack(self, padded: Tensor) -> Tensor:
        """`[rows, longest, width]` -> `[words, width]`."""
        flat = padded.reshape(self.rows * self.longest, padded.shape[-1])
        return flat if self.padded_index is None else _gather(flat, self.padded_index)


@dataclass
class TimeMajorOrder:
    """The order in which `torch.lstm` reads a batch, that of `torch.nn.utils.rnn.PackedSequence`: the first words of all
    sentences, then all second words and so on, each time from the longest sentence to the shortest."""

    packed_index: Tensor  # [words] where each word stands in the packed batch
    padded_index: Tensor  # [words] where each word stands in the padded batch, row * longest + position
    batch_sizes: Tensor  # [longest] sentences that have a word at this position; on CPU, as torch requires
    sorted_rows: Tensor  # [rows] the sentences from the longest to the shortest
    layout: Layout

    @classmethod
    def from_layout(cls, layout: Layout, device: torch.device) -> "TimeMajorOrder":
        rows = np.argsort(-layout.lengths, kind="stable")
        positions = np.arange(layout.longest)[:, None]
        is_word = positions < layout.lengths[rows]  # [longest, rows]
        packed_index = (positions + (np.cumsum(layout.lengths) - layout.lengths)[rows])[is_word]
        padded_index = (positions + rows * layout.longest)[is_word]
        batch_sizes = torch.from_numpy(is_word.sum(1))
        indices = [torch.from_numpy(index) for index in (packed_index, padded_index, rows)]
        if device.type != "cpu":  # from pinned memory: a copy from pageable memory would wait for the device
            indices = [index.pin_memory().to(device, non_blocking=True) for index in indices]
        return cls(indices[0], indices[1], batch_sizes, indices[2], layout)

    def pad(self, words: Tensor) -> Tensor:
        """`[words, width]` in this order -> `[rows, longest, width]`. Padding is zero."""
        padded = _scatter(words, self.padded_index, self.layout.rows * self.layout.longest)
        return padded.view(self.layout.rows, self.layout.longest, words.shape[1])

    def unpad(self, padded: Tensor) -> Tensor:
        """`[rows, longest, width]` -> `[words, width]` in this order."""
        return _gather(padded.flatten(0, 1), self.padded_index)

    def pack(self, words: Tensor) -> Tensor:
        """`[words, width]` in this order -> `[words, width]`, sentence after sentence."""
        return _scatter(words, self.packed_index, len(words))

    def sort_rows(self, states: Tensor) -> Tensor:
        """Orders `[..., rows, width]` from the longest sentence to the shortest."""
        return states.index_select(-2, self.sorted_rows)

    def unsort_rows(self, states: Tensor) -> Tensor:
        """Orders `[..., rows, width]` as the sentences of the batch: the inverse of `sort_rows`."""
        return states.index_select(-2, self.sorted_rows.argsort())


def align_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a mask in another format, whose rows begin at multiples of 16 values."""
    length = mask.shape[-1]
    aligned = mask.new_zeros(*mask.shape[:-1], -(-length // 16) * 16, dtype=dtype)
    return aligned[..., :length].copy_(mask)


def choose_cuts(*lengths: np.ndarray) -> list[int]:
    """Returns the rows at which to cut a batch into parts that need little padding. The sentences are sorted from long
    to short; source and target lengths of the same sentences are cut at the same rows."""
    total = np.sum(lengths, axis=0)
    words_left, cuts = int(total.sum()), list[int]()
    enough = max(words_left / MAX_PARTS, MIN_PART_WORDS)
    begin, words = 0, 0
    for row, length in enumerate(total.tolist()):
        if words >= enough and words_left >= MIN_PART_WORDS and length <= PART_LENGTH_RATIO * total[begin]:
            cuts.append(row)
            begin, words = row, 0
        words, words_left = words + length, words_left - length
    return cuts


class _IndexContext(FunctionCtx):
    saved_tensors: tuple[Tensor, ...]
    size: int


class _Scatter(torch.autograd.Function):
    """Copies rows to unique places. Because no two rows meet, the backward pass is a plain gather; autograd's backward
    of `index_select` cannot know this and has to add."""

    @staticmethod
    def forward(ctx: _IndexContext, values: Tensor, index: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(index)
        return values.new_zeros(size, values.shape[1]).index_copy_(0, index, values)  # [size, width]

    @staticmethod
    def backward(ctx: _IndexContext, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad.index_select(0, ctx.saved_tensors[0]), None, None


class _Gather(torch.autograd.Function):
    """Copies rows from unique places: the inverse of `_Scatter`."""

    @staticmethod
    def forward(ctx: _IndexContext, values: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.size = values.shape[0]
        return values.index_select(0, index)  # [len(index), width]

    @staticmethod
    def backward(ctx: _IndexContext, grad: Tensor) -> tuple[Tensor, None]:
        return grad.new_zeros(ctx.size, grad.shape[1]).index_copy_(0, ctx.saved_tensors[0], grad), None


_scatter: Callable[[Tensor, Tensor, int], Tensor] = _Scatter.apply
_gather: Callable[[Tensor, Tensor], Tensor] = _Gather.apply
