"""The blocks of a Transformer layer as differentiable functions on the CPU kernels of kernels.c.

Each function has one node in autograd's graph where torch's operators have ten and more, saves only what its backward pass
reads, and converts weights once. Matrix products stay torch's. `transformer` computes the same with torch's operators.
The activations `h` have the format of the products, fp32 or bf16; the residual stream `x` is always fp32.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from lockstep import flop_tally
from lockstep.models import kernels
from lockstep.models.dropout import count_dropped
from lockstep.models.kernels import CHUNKS, address, multiply
from lockstep.models.packed import Layout

ROW_UNIT = 32
"""Words are padded to a multiple of this many rows, so that oneDNN can reuse the code that it generates for a shape."""


class SavedContext(FunctionCtx):
    saved_tensors: tuple[Tensor, ...]
    facts: Any  # what the backward pass needs beside tensors


def draw_seed(dropped: int) -> int:
    """Returns the seed of one dropout, from torch's generator; 0 if nothing is dropped."""
    return int(torch.empty((), dtype=torch.int64).random_().item()) if dropped else 0


def pad_rows(values: Tensor) -> Tensor:
    """Pads `[words]` with zeros to a multiple of ROW_UNIT. The rows that result from them have no gradient."""
    missing = -len(values) % ROW_UNIT
    return torch.cat([values, values.new_zeros(missing)]) if missing else values


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: SavedContext, table: Tensor, ids: Tensor, places: Tensor, positions: Tensor, factor: float, dropped: int
    ) -> Tensor:
        x = table.new_empty(len(ids), table.shape[1])
        tensors = [address(tensor) for tensor in (ids, places, table, positions, x)]
        facts = (len(ids), table.shape[1], *tensors, factor, dropped, draw_seed(dropped))
        kernels.run("lockstep_embed", kernels.Embed(*facts, None, None), torch.float32)
        ctx.save_for_backward(ids)
        ctx.facts = facts, table.shape
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: SavedContext, grad: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        facts, shape = ctx.facts
        grad, table_grad = grad.contiguous(), grad.new_zeros(shape)
        arguments = kernels.Embed(*facts, address(grad), address(table_grad))
        kernels.run("lockstep_embed_backward", arguments, torch.float32)
        return table_grad, None, None, None, None, None


def embed(table: Tensor, ids: Tensor, places: Tensor, positions: Tensor, factor: float, p: float) -> Tensor:
    """Returns `dropout(factor * table[ids] + positions[places])`, `[rows, width]`."""
    return _embed(table, ids, places, positions, factor, count_dropped(p))


class _AddNorm(torch.autograd.Function):
    """`total = x + dropout(y)` and `h = norm(total)`. Returns what the residual stream continues with, and h."""

    @staticmethod
    def forward(
        ctx: SavedContext,
        x: Tensor,
        y: Tensor | None,
        weight: Tensor,
        shift: Tensor,
        epsilon: float,
        dropped: int,
        dtype: torch.dtype,
        is_pre_norm: bool,
    ) -> tuple[Tensor, Tensor] | Tensor:
        rows, width = x.shape
        total = None if y is None else torch.empty_like(x)
        h, stats = x.new_empty(rows, width, dtype=dtype), x.new_empty(2 * rows)
        full = None if is_pre_norm or dtype == torch.float32 else torch.empty_like(x)
        seed = draw_seed(dropped) if y is not None else 0
        tensors = [address(tensor) for tensor in (x, y, total, h, full, stats)]
        norm = address(stats, rows), address(weight), address(shift)
        kernels.run("lockstep_add_norm", kernels.AddNorm(rows, width, *tensors, *norm, epsilon, dropped, seed), dtype)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x if total is None else total, stats, weight)
        ctx.facts = dropped, seed, dtype, y is not None, is_pre_norm
        if is_pre_norm:
            return h if total is None else (total, h)
        return h if full is None else (full, h)

    @staticmethod
    @once_differentiable
    def backward(ctx: SavedContext, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        total, stats, weight = ctx.saved_tensors
        dropped, seed, dtype, has_y, is_pre_norm = ctx.facts
        rows, width = total.shape
        stream_grad, h_grad = ([None, *grads])[-2:]
        stream_grad = None if stream_grad is None else stream_grad.contiguous()
        h_grad = None if h_grad is None else h_grad.contiguous()
        full_grad, total_grad = (None, stream_grad) if is_pre_norm else (stream_grad, None)
        x_grad = torch.empty_like(total)
        y_grad = total.new_empty(rows, width, dtype=dtype) if has_y else None
        sums = total.new_empty(CHUNKS, 2, width)
        read = [address(tensor) for tensor in (h_grad, full_grad, total_grad, total, stats)]
        written = [address(tensor) for tensor in (x_grad, y_grad, sums)]
        arguments = kernels.AddNormBackward(
            *(rows, width, *read, address(stats, rows), address(weight), *written, dropped, seed)
        )
        kernels.run("lockstep_add_norm_backward", arguments, dtype)
        return x_grad, y_grad, sums[0, 0], sums[0, 1], None, None, None, None


def add_norm(
    x: Tensor, y: Tensor | None, norm: nn.LayerNorm, p: float, dtype: torch.dtype, is_pre_norm: bool
) -> tuple[Tensor, Tensor]:
    """Adds a block's output to the residual stream and normalizes the sum; returns the stream and the next block's input.

    With pre-norm the stream continues with the sum, with post-norm with the normalized sum. Without `y` nothing is added.
    """
    dropped = 0 if y is None else count_dropped(p)
    result = _add_norm(x, y, norm.weight, norm.bias, norm.eps, dropped, dtype, is_pre_norm)
    if isinstance(result, Tensor):
        return (x if is_pre_norm else result), result
    return result


@dataclass(frozen=True)
class Pairing:
    """Which words attend to which: the sentences of the queries, and for each the sentence of its keys."""

    queries: Tensor  # [sentences + 1] int32, where each sentence begins
    keys: Tensor
    places: Tensor  # [sentences + 1] int64, where the attention weights of each sentence begin, for one head
    weights: int  # of one head, keys padded to a multiple of 16
    pairs: int  # of a query and a key
    most_queries: int  # of a sentence, padded to a multiple of 4
    most_keys: int  # padded to a multiple of 16

    @classmethod
    def make(cls, layout: Layout, memory_layout: Layout) -> "Pairing":
        queries, keys = layout.lengths, memory_layout.lengths
        columns = -(-keys // 16) * 16
        places = np.zeros(len(queries) + 1, np.int64)
        np.cumsum(queries * columns, out=places[1:])
        most_queries, most_keys = -(-int(queries.max()) // 4) * 4, int(columns.max())
        return cls(
            *(layout.offsets, memory_layout.offsets, torch.from_numpy(places), int(places[-1])),
            *(int(queries @ keys), most_queries, most_keys),
        )

    def make_scratch(self, size: int) -> Tensor:
        """Returns memory for one sentence and head per thread."""
        padded, queries, keys = -(-size // 16) * 16, self.most_queries, self.most_keys
        values = (2 * queries + 2 * keys + max(queries, keys)) * padded + 2 * queries * keys
        values += queries * keys // 4 + 16  # bytes of the dropout mask
        return torch.empty(torch.get_num_threads(), values)


@dataclass(frozen=True)
class Heads:
    """How a block attends."""

    pairing: Pairing
    heads: int
    causal: bool
    p: float  # dropout of the attention weights


@dataclass
class _Attention:
    """The operands of one attention, kept for its backward pass."""

    how: Heads
    dropped: int
    seed: int
    weights: Tensor  # softmax of the scores

    @classmethod
    def compute(cls, how: Heads, query: Tensor, key: Tensor, value: Tensor) -> tuple["_Attention", Tensor]:
        """Returns the attention and its result, `[rows, width]`. Rows that belong to no sentence are zero."""
        dropped = count_dropped(how.p)
        weights = torch.empty(how.pairing.weights * how.heads)
        attention = cls(how, dropped, draw_seed(dropped), weights)
        width = query.shape[1]
        out = query.new_empty(len(query), width)
        out[int(how.pairing.queries[-1]) :] = 0
        attention._run("lockstep_attend", width, (query, key, value), out)
        flop_tally.add(4 * how.pairing.pairs * width)
        return attention, out

    def backward(
        self, operands: tuple[Tensor, Tensor, Tensor], grads: tuple[Tensor, Tensor, Tensor], out_grad: Tensor
    ) -> None:
        """Writes the gradients of query, key and value, which have the strides of the operands."""
        width = out_grad.shape[1]
        self._run("lockstep_attend_backward", width, operands, None, out_grad, *grads)
        flop_tally.add(8 * self.how.pairing.pairs * width)

    def _run(
        self, kernel: str, width: int, operands: tuple[Tensor, Tensor, Tensor], out: Tensor | None, *grads: Tensor
    ) -> None:
        how, pairing, size = self.how, self.how.pairing, width // self.how.heads
        scratch = pairing.make_scratch(size)
        arguments = kernels.Attend(
            *(len(pairing.places) - 1, how.heads, size),
            *(address(tensor) for tensor in (pairing.queries, pairing.keys, pairing.places, *operands)),
            *(operand.stride(0) for operand in operands),
            *(address(out), address(self.weights), how.causal, self.dropped, self.seed),
            *(address(grad) for grad in (grads or (None, None, None, None))),
            *(address(scratch), scratch.shape[1]),
        )
        kernels.run(kernel, arguments, operands[0].dtype)


def _empty_grads(like: Tensor, words: Tensor) -> Tensor:
    """Returns memory for gradients of packed words. Rows that belong to no sentence are zero."""
    grads = torch.empty_like(like)
    grads[int(words[-1]) :] = 0
    return grads


class _SelfAttention(torch.autograd.Function):
    """Queries, keys and values come from one product."""

    @staticmethod
    def forward(ctx: SavedContext, h: Tensor, query: Tensor, key_value: Tensor, output: Tensor, how: Heads) -> Tensor:
        width, dtype = h.shape[1], h.dtype
        weight = torch.cat([query.to(dtype), key_value.to(dtype)])  # [3 * width, width]
        output_weight = output.to(dtype)
        joint = multiply(h, weight.T)  # [rows, 3 * width]
        attention, attended = _Attention.compute(how, *_split_joint(joint, width))
        ctx.save_for_backward(h, weight, output_weight, joint, attended)
        ctx.facts = attention, query.dtype
        return multiply(attended, output_weight.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: SavedContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, weight, output_weight, joint, attended = ctx.saved_tensors
        attention, dtype = ctx.facts
        width = h.shape[1]
        output_grad = multiply(grad.T, attended).to(dtype)
        joint_grad = _empty_grads(joint, attention.how.pairing.queries)
        operands, grads = _split_joint(joint, width), _split_joint(joint_grad, width)
        attention.backward(operands, grads, multiply(grad, output_weight))
        query_grad, key_value_grad = multiply(joint_grad.T, h).to(dtype).split([width, 2 * width])
        return multiply(joint_grad, weight), query_grad, key_value_grad, output_grad, None


def _split_joint(joint: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    return joint[:, :width], joint[:, width : 2 * width], joint[:, 2 * width :]


class _SourceAttention(torch.autograd.Function):
    """Queries come from the target words, keys and values from the memory of the source."""

    @staticmethod
    def forward(
        ctx: SavedContext, h: Tensor, memory: Tensor, query: Tensor, key_value: Tensor, output: Tensor, how: Heads
    ) -> Tensor:
        width, dtype = h.shape[1], h.dtype
        weights = query.to(dtype), key_value.to(dtype), output.to(dtype)
        queries, pairs = multiply(h, weights[0].T), multiply(memory, weights[1].T)  # [rows, width], [rows, 2 * width]
        attention, attended = _Attention.compute(how, queries, pairs[:, :width], pairs[:, width:])
        ctx.save_for_backward(h, memory, *weights, queries, pairs, attended)
        ctx.facts = attention, query.dtype
        return multiply(attended, weights[2].T)

    @staticmethod
    @once_differentiable
    def backward(ctx: SavedContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, memory, query, key_value, output, queries, pairs, attended = ctx.saved_tensors
        attention, dtype = ctx.facts
        width, pairing = h.shape[1], attention.how.pairing
        output_grad = multiply(grad.T, attended).to(dtype)
        queries_grad, pairs_grad = _empty_grads(queries, pairing.queries), _empty_grads(pairs, pairing.keys)
        operands = queries, pairs[:, :width], pairs[:, width:]
        grads = queries_grad, pairs_grad[:, :width], pairs_grad[:, width:]
        attention.backward(operands, grads, multiply(grad, output))
        query_grad, key_value_grad = multiply(queries_grad.T, h).to(dtype), multiply(pairs_grad.T, memory).to(dtype)
        h_grad, memory_grad = multiply(queries_grad, query), multiply(pairs_grad, key_value)
        return h_grad, memory_grad, query_grad, key_value_grad, output_grad, None


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: SavedContext,
        h: Tensor,
        inner: Tensor,
        inner_bias: Tensor,
        outer: Tensor,
        outer_bias: Tensor,
        dropped: int,
    ) -> Tensor:
        dtype = h.dtype
        inner_weight, outer_weight = inner.to(dtype), outer.to(dtype)
        hidden = multiply(h, inner_weight.T)  # [rows, feed_forward]
        arguments = (*hidden.shape, address(hidden), address(inner_bias), dropped, draw_seed(dropped))
        kernels.run("lockstep_relu", kernels.Relu(*arguments), dtype)
        ctx.save_for_backward(h, inner_weight, outer_weight, hidden)
        ctx.facts = dropped, inner.dtype
        return multiply(hidden, outer_weight.T).add_(outer_bias.to(dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: SavedContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, inner, outer, hidden = ctx.saved_tensors
        dropped, dtype = ctx.facts
        outer_grad = multiply(grad.T, hidden).to(dtype)
        outer_bias_grad = torch.sum(grad, 0, dtype=torch.float32)
        hidden_grad = multiply(grad, outer)
        sums = torch.empty(CHUNKS, hidden.shape[1])
        arguments = (*hidden.shape, address(hidden_grad), address(hidden), address(sums), dropped)
        kernels.run("lockstep_relu_backward", kernels.ReluBackward(*arguments), h.dtype)
        inner_grad = multiply(hidden_grad.T, h).to(dtype)
        return multiply(hidden_grad, inner), inner_grad, sums[0], outer_grad, outer_bias_grad, None


def feed_forward(h: Tensor, inner: nn.Linear, outer: nn.Linear, p: float) -> Tensor:
    """Returns `outer(dropout(relu(inner(h))))`."""
    return _feed_forward(h, inner.weight, inner.bias, outer.weight, outer.bias, count_dropped(p))


_embed: Callable[..., Tensor] = _Embed.apply
_add_norm: Callable[..., tuple[Tensor, Tensor] | Tensor] = _AddNorm.apply
_feed_forward: Callable[..., Tensor] = _FeedForward.apply
self_attention: Callable[[Tensor, Tensor, Tensor, Tensor, Heads], Tensor] = _SelfAttention.apply
"""Takes h and the weights of query, key and value, and output."""
source_attention: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Heads], Tensor] = _SourceAttention.apply
"""Takes h, the memory, and the weights of query, key and value, and output."""
