"""Decodes a Transformer on CPU, one word of every hypothesis at a time, with the kernels of decode_kernels.c.

Reordering hypotheses copies nothing but a small table. Attention reads no padding; queries, keys and values are one
product; weights are converted once per search. `transformer` computes the same with torch's operators.
"""

import ctypes
import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from lockstep.models import kernels
from lockstep.models.fused import ROW_UNIT
from lockstep.models.kernels import address
from lockstep.models.packed import Layout

if TYPE_CHECKING:
    from lockstep.models.transformer import Attention, DecoderLayer, FeedForward, ResidualSublayer, Transformer


def are_kernels_used(x: Tensor) -> bool:
    """Are tensors like this one decoded with the native kernels?"""
    is_inference = not torch.is_grad_enabled()
    return is_inference and x.device.type == "cpu" and kernels.find_dtype(x) in kernels.HALF and kernels.are_available()


class _Layer:
    """The weights of a decoder layer in the format of products, and its keys and values."""

    def __init__(self, layer: "DecoderLayer", memory: Tensor, dtype: torch.dtype) -> None:
        attention: Attention = layer.attention.sub_layer  # type: ignore[assignment]
        source: Attention = layer.source.sub_layer  # type: ignore[assignment]
        feed_forward: FeedForward = layer.feed_forward.sub_layer  # type: ignore[assignment]
        self.blocks = layer
        self.heads = attention.heads
        self.query_key_value = torch.cat([attention.query.weight, attention.key_value.weight]).to(dtype)
        self.output = attention.output.weight.to(dtype)
        self.source_query, self.source_output = source.query.weight.to(dtype), source.output.weight.to(dtype)
        self.inner, self.outer = feed_forward.inner.weight.to(dtype), feed_forward.outer.weight.to(dtype)
        self.inner_bias, self.outer_bias = feed_forward.inner.bias.to(dtype), feed_forward.outer.bias.to(dtype)
        self.source_words = F.linear(memory.to(dtype), source.key_value.weight.to(dtype)).float()
        self.words: list[Tensor] = []  # [hypotheses, 3 * width] of each position: queries, keys, values


class NativeCache:
    """All layers of a Transformer, and what they carry from one decoding step to the next."""

    def __init__(self, model: "Transformer", memory: Tensor, layout: Layout, beam: int) -> None:
        self.model, self.beam = model, beam
        self.dtype = kernels.find_dtype(model.embedding.weight)
        self.table = model.embedding.weight.to(self.dtype)
        self.begins = layout.offsets[:-1].long().contiguous()  # [rows]
        self.lengths = torch.from_numpy(layout.lengths)  # [rows]
        self.origins = torch.empty(0, layout.rows * beam, dtype=torch.int32)  # [positions, hypotheses]
        with torch.autocast("cpu", enabled=False), kernels.fast_products():
            self.layers = [_Layer(layer, memory, self.dtype) for layer in model.decoder]  # type: ignore[arg-type]

    def select(self, hypotheses: Tensor, sentences: Tensor | None) -> None:
        """Keeps and reorders these hypotheses, and keeps these sentences when some have left the batch."""
        self.origins = self.origins.index_select(1, hypotheses)
        if sentences is not None:
            self.begins = self.begins.index_select(0, sentences)
            self.lengths = self.lengths.index_select(0, sentences)

    def step(self, ids: Tensor, position: int) -> Tensor:
        """The last word of every hypothesis `[rows, beam]` -> logits of the next `[rows, beam, vocabulary]`."""
        rows, beam = ids.shape
        count = rows * beam
        self.origins = torch.cat([self.origins, torch.arange(count, dtype=torch.int32)[None]])
        with torch.autocast("cpu", enabled=False), kernels.fast_products():
            x = self._embed(ids.flatten(), position)  # [padded hypotheses, width]
            for layer in self.layers:
                x = self._run_layer(layer, x, count)
            logits = self._multiply(self.model.decoder_norm(x), self.table)
        return logits[:count].view(rows, beam, -1)

    def _embed(self, ids: Tensor, position: int) -> Tensor:
        """oneDNN generates code for every shape, so the rows are padded to few different numbers."""
        ids = F.pad(ids, (0, -len(ids) % ROW_UNIT))
        words = F.embedding(ids, self.model.embedding.weight) * math.sqrt(self.model.settings.width)
        return words + self.model.positional_encoding(position + 1)[position]

    def _run_layer(self, layer: _Layer, x: Tensor, count: int) -> Tensor:
        attention, source, feed_forward = layer.blocks.attention, layer.blocks.source, layer.blocks.feed_forward
        mixed = self._multiply(attention.prepare_input(x), layer.query_key_value).float()
        layer.words.append(mixed)
        x = _add(attention, x, self._multiply(self._attend_words(layer, mixed, count), layer.output))
        query = self._multiply(source.prepare_input(x), layer.source_query).float()
        x = _add(source, x, self._multiply(self._attend_source(layer, query, count), layer.source_output))
        hidden = self._multiply(feed_forward.prepare_input(x), layer.inner, layer.inner_bias).relu_()
        return _add(feed_forward, x, self._multiply(hidden, layer.outer, layer.outer_bias))

    def _multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.linear(x.to(self.dtype), weight, bias)

    def _attend_words(self, layer: _Layer, mixed: Tensor, count: int) -> Tensor:
        """Attends to the words so far; the last of them is in `mixed`."""
        width, stride = mixed.shape[1] // 3, mixed.shape[1]
        out = mixed.new_zeros(len(mixed), width)
        blocks = (ctypes.c_void_p * len(layer.words))(*(address(block, width) for block in layer.words))
        heads = count, layer.heads, width // layer.heads
        words = len(layer.words), ctypes.addressof(blocks), address(self.origins), stride
        arguments = kernels.DecodeAttention(*heads, address(mixed), stride, address(out), *words, None, None, None, 1)
        kernels.run("lockstep_decode_attention", arguments, torch.float32)
        return out

    def _attend_source(self, layer: _Layer, query: Tensor, count: int) -> Tensor:
        """Attends to the source sentences. All hypotheses of a sentence read the same keys and values."""
        width = query.shape[1]
        out = torch.zeros_like(query)
        heads = count, layer.heads, width // layer.heads
        source = address(layer.source_words), address(self.begins), address(self.lengths), self.beam
        longest = int(self.lengths.max())
        arguments = kernels.DecodeAttention(
            *heads, address(query), width, address(out), longest, None, None, 0, *source
        )
        kernels.run("lockstep_decode_attention", arguments, torch.float32)
        return out


def _add(block: "ResidualSublayer", x: Tensor, output: Tensor) -> Tensor:
    """Adds the output of a block to the residual stream, which is fp32."""
    total = x + output
    return total if block.is_pre_norm else block.norm(total)


def find_best_words(logits: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the `count` best continuations of each sentence, the best first: their scores and their places, hypothesis *
    vocabulary + word, both `[rows, count]`. `logits` are `[rows, beam, vocabulary]`, `scores` `[rows, beam]`."""
    rows, beam, vocabulary = logits.shape
    logits, scores = logits.contiguous(), scores.contiguous()
    best_scores = torch.empty(rows, count)
    best = torch.empty(rows, count, dtype=torch.int64)
    tensors = [address(tensor) for tensor in (scores, best_scores, best)]
    arguments = kernels.BestWords(rows, beam, vocabulary, count, address(logits), vocabulary, *tensors)
    kernels.run("lockstep_best_words", arguments, logits.dtype)
    return best_scores, best
