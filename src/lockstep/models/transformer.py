"""The Transformer: packed word ids in, packed vectors out. Loss and training are elsewhere.

Packed means that the sentences of a batch are laid end to end without padding; see `models.packed`. In training on CPU the
blocks of a layer are computed by `models.fused`, where its kernels are selected.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.models import decoding, fused, kernels
from lockstep.models.dropout import Dropout, dropout, relu_dropout
from lockstep.models.model_settings import TransformerSettings
from lockstep.models.packed import Layout

EXPLICIT_LIMIT = 128
"""On CPU, up to this many keys, an explicit softmax(QK)V is faster than the fused kernel with its slow backward."""


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, dropout_p: float) -> Tensor:
    """Scaled dot-product attention over `[rows, heads, length, head_size]`. `mask` is added to the scores.

    The kernel depends on device and shape only, so the same batch always takes the same path.
    """
    if query.device.type != "cpu":
        return _attend_fused(query, key, value, mask, causal, dropout_p)
    # On CPU in fp32: softmax and its products are slow in bf16, and so is the fused kernel's backward pass.
    with torch.autocast("cpu", enabled=False):
        query, key, value = query.float(), key.float(), value.float()
        if key.shape[2] > EXPLICIT_LIMIT:
            return _attend_fused(query, key, value, mask, causal, dropout_p)
        scores = (query * (1.0 / math.sqrt(query.shape[-1]))) @ key.transpose(2, 3)  # [rows, heads, queries, keys]
        if mask is not None:
            scores = scores + mask
        if causal:
            scores = scores + _causal_mask(query.shape[2], query.device)
        return dropout(scores.softmax(-1), dropout_p) @ value


def _attend_fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, dropout_p: float
) -> Tensor:
    if causal and mask is not None:
        mask, causal = mask + _causal_mask(query.shape[2], query.device), False
    if mask is not None:
        mask = mask.to(query.dtype)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout_p, is_causal=causal)


def _causal_mask(length: int, device: torch.device) -> Tensor:
    """Returns `[length, length]` with -inf where a key comes after its query."""
    return torch.full((length, length), -math.inf, device=device).triu_(1)


LARGEST_VARLEN_HEAD = 192
"""Larger heads with dropout have no backward kernel on every GPU."""


def supports_varlen(query: Tensor, heads: int) -> bool:
    """Can torch's variable-length kernel attend to packed words? It needs an Ampere GPU or newer, half precision, and a
    head size that is a multiple of 8."""
    head_size = query.shape[-1] // heads
    is_half = query.dtype in (torch.bfloat16, torch.float16)
    fits = is_half and head_size % 8 == 0 and head_size <= LARGEST_VARLEN_HEAD
    return query.is_cuda and fits and torch.cuda.get_device_capability(query.device) >= (8, 0)


def attend_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layout: Layout,
    memory_layout: Layout,
    heads: int,
    causal: bool,
    dropout_p: float,
) -> Tensor:
    """Attention over packed words `[words, width]`, without padding. torch's own `varlen_attn` has no dropout, and imports
    the compiler."""
    query, key, value = (x.unflatten(1, (heads, -1)) for x in (query, key, value))  # [words, heads, head_size]
    offsets, longest = (layout.offsets, memory_layout.offsets), (layout.longest, memory_layout.longest)
    attended: Tensor = _flash_attention(query, key, value, *offsets, *longest, dropout_p, causal, False)[0]
    return attended.flatten(1)  # [words, width]


_flash_attention = torch.ops.aten._flash_attention_forward


class Attention(nn.Module):
    """Multi-head attention without biases. The keys come from `memory`: the same sentences, or their sources."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        width, attention_dropout = settings.width, settings.attention_dropout
        self.heads = settings.heads
        self.dropout = settings.dropout if attention_dropout is None else attention_dropout
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def _split_heads(self, padded: Tensor) -> Tensor:
        rows, length, width = padded.shape
        return padded.view(rows, length, self.heads, width // self.heads).transpose(1, 2)  # [rows, heads, length, size]

    def _merge_heads(self, padded: Tensor) -> Tensor:
        return padded.transpose(1, 2).flatten(2)  # [rows, length, width]

    def forward(self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout, causal: bool = False) -> Tensor:
        """Packed queries `[words, width]` and packed memory `[memory words, width]` -> `[words, width]`."""
        query, key_value = self.query(x), self.key_value(memory)  # [words, width], [memory words, 2 * width]
        if supports_varlen(query, self.heads):
            key, value = key_value.chunk(2, dim=-1)
            dropout_p = self.dropout if self.training else 0.0
            return self.output(attend_varlen(query, key, value, layout, memory_layout, self.heads, causal, dropout_p))
        if layout.parts:
            queries = query.split([part.words for part in layout.parts])
            keys_values = key_value.split([part.words for part in memory_layout.parts])
            parts = zip(queries, keys_values, layout.parts, memory_layout.parts, strict=True)
            return self.output(torch.cat([self._attend_padded(*part, causal) for part in parts]).to(x.dtype))
        return self.output(self._attend_padded(query, key_value, layout, memory_layout, causal).to(x.dtype))

    def attend_fused(self, x: Tensor, memory: Tensor, pairing: fused.Pairing, causal: bool = False) -> Tensor:
        """Computes what `forward` does with the fused kernels."""
        how = fused.Heads(pairing, self.heads, causal, self.dropout)
        weights = self.query.weight, self.key_value.weight, self.output.weight
        if memory is x:
            return fused.self_attention(x, *weights, how)
        return fused.source_attention(x, memory, *weights, how)

    def _attend_padded(
        self, query: Tensor, key_value: Tensor, layout: Layout, memory_layout: Layout, causal: bool
    ) -> Tensor:
        """Pads packed queries, keys and values, attends, and packs the result: `[words, width]`."""
        key, value = self._split_key_value(key_value, memory_layout)
        # Padding follows a sentence's words, so the causal mask already excludes it.
        mask = None if causal else memory_layout.get_mask(query)
        dropout_p = self.dropout if self.training else 0.0
        attended = attend(self._split_heads(layout.pad(query)), key, value, mask, causal, dropout_p)
        return layout.pack(self._merge_heads(attended))

    def project_memory(self, memory: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Returns keys and values of packed words, `[rows, heads, length, head_size]` each."""
        return self._split_key_value(self.key_value(memory), layout)

    def _split_key_value(self, key_value: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        key, value = layout.pad(key_value).chunk(2, dim=-1)  # [rows, length, width] each
        return self._split_heads(key), self._split_heads(value)

    def attend_cached(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attention of `[rows, queries, width]` to cached keys and values, for decoding."""
        attended = attend(self._split_heads(self.query(x)), key, value, mask, False, 0.0)
        return self.output(self._merge_heads(attended).to(x.dtype))


class FeedForward(nn.Module):
    """Two linear layers with ReLU and dropout between them."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden)
        self.outer = nn.Linear(hidden, width)
        self.dropout = dropout

    def forward(self, x: Tensor, is_fused: bool = False) -> Tensor:
        if is_fused:
            return fused.feed_forward(x, self.inner, self.outer, self.dropout)
        return self.outer(relu_dropout(self.inner(x), self.dropout if self.training else 0.0))


Stream = tuple[Tensor, Tensor | None]
"""What one layer passes to the next. Pre-norm: the residual stream, and the output of the last block, which is not added
yet, because a fused kernel adds and normalizes at once. Post-norm: the stream, and the same in the format of products."""


class ResidualSublayer(nn.Module):
    """The residual connection around a sublayer: `x + dropout(f(norm(x)))`, or `norm(x + dropout(f(x)))` for post-norm."""

    def __init__(self, sub_layer: nn.Module, settings: TransformerSettings) -> None:
        super().__init__()
        self.sub_layer = sub_layer
        self.norm = nn.LayerNorm(settings.width)
        self.dropout = Dropout(settings.dropout)
        self.is_pre_norm = settings.norm == "pre"

    def add_norm(self, x: Tensor, y: Tensor | None, is_fused: bool) -> tuple[Tensor, Tensor]:
        """Adds a block's output to the residual stream and normalizes; returns the stream and the next block's input."""
        return add_norm(x, y, self.norm, self.dropout, self.is_pre_norm, is_fused)

    def prepare_input(self, x: Tensor) -> Tensor:
        """Returns the input of the sublayer."""
        return self.norm(x) if self.is_pre_norm else x

    def add_residual(self, x: Tensor, output: Tensor) -> Tensor:
        """Adds the output of the sublayer to its input `x`."""
        x = x + self.dropout(output)
        return x if self.is_pre_norm else self.norm(x)


def add_norm(
    x: Tensor, y: Tensor | None, norm: nn.Module, dropout: Dropout, is_pre_norm: bool, is_fused: bool
) -> tuple[Tensor, Tensor]:
    """Adds `dropout(y)` to the residual stream, if there is a y, and normalizes; returns the stream and the next input."""
    if is_fused:
        assert isinstance(norm, nn.LayerNorm)
        return fused.add_norm(x, y, norm, dropout.p, kernels.find_dtype(x), is_pre_norm)
    total = x if y is None else x + dropout(y)
    h = norm(total)
    return (total if is_pre_norm else h), h


def run_blocks(
    x: Tensor,
    y: Tensor | None,
    blocks: Sequence[tuple[ResidualSublayer, Callable[[Tensor], Tensor]]],
    is_fused: bool,
) -> Stream:
    """Runs the blocks of a layer, each with its residual connection."""
    for sublayer, compute in blocks:
        if sublayer.is_pre_norm:
            x, h = sublayer.add_norm(x, y, is_fused)
            y = compute(h)
        else:
            x, y = sublayer.add_norm(x, compute(x if y is None else y), is_fused)
    return x, y


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward over packed words `[words, width]`."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.attention = ResidualSublayer(Attention(settings), settings)
        self.feed_forward = ResidualSublayer(
            FeedForward(settings.width, settings.feed_forward, settings.dropout), settings
        )

    def forward(self, x: Tensor, y: Tensor | None, layout: Layout, pairing: fused.Pairing | None) -> Stream:
        """A pairing asks for the fused kernels."""
        attention, feed_forward = self.attention.sub_layer, self.feed_forward.sub_layer
        assert isinstance(attention, Attention)
        assert isinstance(feed_forward, FeedForward)
        is_fused = pairing is not None

        def attend(h: Tensor) -> Tensor:
            return attention(h, layout, h, layout) if pairing is None else attention.attend_fused(h, h, pairing)

        blocks = (self.attention, attend), (self.feed_forward, lambda h: feed_forward(h, is_fused))
        return run_blocks(x, y, blocks, is_fused)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, and feed-forward over packed words `[words, width]`."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.attention = ResidualSublayer(Attention(settings), settings)
        self.source = ResidualSublayer(Attention(settings), settings)
        self.feed_forward = ResidualSublayer(
            FeedForward(settings.width, settings.feed_forward, settings.dropout), settings
        )

    def forward(
        self,
        x: Tensor,
        y: Tensor | None,
        layout: Layout,
        memory: Tensor,
        memory_layout: Layout,
        pairings: tuple[fused.Pairing, fused.Pairing] | None,
    ) -> Stream:
        """Pairings, of target words with target words and with source words, ask for the fused kernels."""
        attention, source, feed_forward = (
            self.attention.sub_layer,
            self.source.sub_layer,
            self.feed_forward.sub_layer,
        )
        assert isinstance(attention, Attention)
        assert isinstance(source, Attention)
        assert isinstance(feed_forward, FeedForward)
        is_fused = pairings is not None

        def attend(h: Tensor) -> Tensor:
            if pairings is None:
                return attention(h, layout, h, layout, causal=True)
            return attention.attend_fused(h, h, pairings[0], causal=True)

        def attend_source(h: Tensor) -> Tensor:
            if pairings is None:
                return source(h, layout, memory, memory_layout)
            return source.attend_fused(h, memory, pairings[1])

        blocks = (
            (self.attention, attend),
            (self.source, attend_source),
            (self.feed_forward, lambda h: feed_forward(h, is_fused)),
        )
        return run_blocks(x, y, blocks, is_fused)

    def step(self, x: Tensor, cache: "LayerCache") -> Tensor:
        """Computes one more word of every hypothesis: `[rows, beam, width]` -> `[rows, beam, width]`."""
        rows, beam, width = x.shape
        attention, source = self.attention.sub_layer, self.source.sub_layer
        assert isinstance(attention, Attention)
        assert isinstance(source, Attention)
        y = self.attention.prepare_input(x).view(rows * beam, 1, width)  # one row per hypothesis
        key, value = cache.append(attention.key_value(y).squeeze(1))
        x = self.attention.add_residual(x, attention.attend_cached(y, key, value, None).view(rows, beam, width))
        # The hypotheses of a sentence are the queries of one row, so that they share one copy of its source.
        y = self.source.prepare_input(x)
        y = source.attend_cached(y, cache.source_key, cache.source_value, cache.padding_mask)
        x = self.source.add_residual(x, y)
        return self.feed_forward.add_residual(x, self.feed_forward.sub_layer(self.feed_forward.prepare_input(x)))


class LayerCache:
    """Keys and values of one decoder layer: of the words so far per hypothesis, and of the source per sentence.

    Those of the words so far are in a buffer `[capacity, 2, hypotheses, width]`. Appending a word writes in place, and
    reordering hypotheses is one copy into a second buffer of the same size.
    """

    INITIAL_CAPACITY = 32  # words

    def __init__(self, source_key: Tensor, source_value: Tensor, padding_mask: Tensor | None, beam: int) -> None:
        rows, self.heads, _, self.head_size = source_key.shape
        self.source_key, self.source_value, self.padding_mask = source_key, source_value, padding_mask
        self.length = 0
        self._words = source_key.new_empty(self.INITIAL_CAPACITY, 2, rows * beam, self.heads * self.head_size)
        self._spare = torch.empty_like(self._words)

    def append(self, key_value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds a word, `[hypotheses, 2 * width]`; returns keys and values so far, `[hypotheses, heads, length, head_size]`
        each."""
        if self.length == len(self._words):
            self._words = torch.cat([self._words, self._words])
            self._spare = torch.empty_like(self._words)
        self._words[self.length] = key_value.unflatten(1, (2, -1)).transpose(0, 1)  # [2, hypotheses, width]
        self.length += 1
        words = self._words[: self.length].unflatten(3, (self.heads, self.head_size))
        key, value = words.permute(1, 2, 3, 0, 4).unbind()
        return key, value

    def select(self, hypotheses: Tensor, sentences: Tensor | None) -> None:
        """Keeps and reorders these hypotheses, and keeps these sentences when some have left the batch."""
        if len(hypotheses) != self._spare.shape[2]:
            self._spare = self._words.new_empty(len(self._words), 2, len(hypotheses), self._words.shape[3])
        torch.index_select(self._words[: self.length], 2, hypotheses, out=self._spare[: self.length])
        self._words, self._spare = self._spare, self._words
        if sentences is not None:
            self.source_key = self.source_key.index_select(0, sentences)
            self.source_value = self.source_value.index_select(0, sentences)
            if self.padding_mask is not None:
                self.padding_mask = self.padding_mask.index_select(0, sentences)


Caches = list[LayerCache] | list[decoding.NativeCache]


class Transformer(nn.Module):
    """Encoder-decoder with one embedding shared by source, target and output, and sinusoidal positions."""

    def __init__(self, settings: TransformerSettings, vocabulary_size: int) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = nn.Embedding(vocabulary_size, settings.width)
        self.dropout = Dropout(settings.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(settings) for _ in range(settings.decoder_layers))
        is_pre_norm = settings.norm == "pre"  # post-norm layers already end in a norm
        self.encoder_norm = nn.LayerNorm(settings.width) if is_pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(settings.width) if is_pre_norm else nn.Identity()
        self._position_table: Tensor
        self.register_buffer("_position_table", torch.empty(0, settings.width), persistent=False)
        self._initialize()

    def _initialize(self) -> None:
        nn.init.normal_(self.embedding.weight, std=self.settings.width**-0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def positional_encoding(self, length: int) -> Tensor:
        """Returns the sine and cosine table, `[at least length, width]`; a longer sentence makes it grow."""
        if length > self._position_table.shape[0]:
            width, size = self.settings.width, max(256, 2 * length)
            device = self.embedding.weight.device
            rate = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10_000.0) / width))
            angle = torch.arange(size, device=device)[:, None] * rate  # [size, width / 2]
            self._position_table = torch.cat([angle.sin(), angle.cos()], dim=1)
        return self._position_table

    def _embed(self, ids: Tensor, positions: Tensor, longest: int) -> Tensor:
        """Word ids `[...]` at `positions` `[...]` -> vectors `[..., width]`."""
        words = F.embedding(ids, self.embedding.weight) * math.sqrt(self.settings.width)
        return self.dropout(words + self.positional_encoding(longest)[positions])

    def forward(self, source: Tensor, source_layout: Layout, target: Tensor, layout: Layout) -> Tensor:
        """Returns a vector for each target word, from the source and the target words so far: `[target words, width]`."""
        return self.decode(target, layout, self.encode(source, source_layout), source_layout)

    def encode(self, ids: Tensor, layout: Layout) -> Tensor:
        """Packed source ids `[words]` -> memory `[words, width]`. Fused kernels add rows that belong to no sentence."""
        is_fused = self._is_fused()
        pairing = fused.Pairing.make(layout, layout) if is_fused else None
        x, y = self._embed_words(ids, layout, is_fused)
        for layer in self.encoder:
            x, y = layer(x, y, layout, pairing)
        return self._end(x, y, self.encoder_norm, is_fused)

    def decode(self, ids: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout) -> Tensor:
        """Packed target ids `[words]` -> a vector for the word after each, `[words, width]`. Fused kernels add rows that
        belong to no sentence."""
        is_fused = self._is_fused()
        pairings = None
        if is_fused:
            pairings = fused.Pairing.make(layout, layout), fused.Pairing.make(layout, memory_layout)
        x, y = self._embed_words(ids, layout, is_fused)
        for layer in self.decoder:
            x, y = layer(x, y, layout, memory, memory_layout, pairings)
        return self._end(x, y, self.decoder_norm, is_fused)

    def _is_fused(self) -> bool:
        return self.training and kernels.are_used(self.embedding.weight)

    def _embed_words(self, ids: Tensor, layout: Layout, is_fused: bool) -> Stream:
        """Returns what the first layer gets."""
        if not is_fused:
            return self._embed(ids, layout.positions, layout.longest), None
        ids, places = fused.pad_rows(ids), fused.pad_rows(layout.positions)
        table, positions = self.embedding.weight, self.positional_encoding(layout.longest)
        x = fused.embed(table, ids, places, positions, math.sqrt(self.settings.width), self.dropout.p)
        dtype = kernels.find_dtype(x)
        return x, None if self.settings.norm == "pre" or dtype == x.dtype else x.to(dtype)

    def _end(self, x: Tensor, y: Tensor | None, norm: nn.Module, is_fused: bool) -> Tensor:
        """Returns the output of the last layer, normalized."""
        if self.settings.norm == "post":
            return x if y is None else y
        return add_norm(x, y, norm, self.dropout, True, is_fused)[1]

    @property
    def output_weight(self) -> Tensor:
        """The output projection, `[vocabulary, width]`."""
        return self.embedding.weight

    def logits(self, x: Tensor) -> Tensor:
        return F.linear(x, self.output_weight)

    def start(self, memory: Tensor, layout: Layout, beam: int) -> Caches:
        """Returns the caches for decoding `beam` hypotheses of every source sentence: one per layer, or one for all."""
        if decoding.are_kernels_used(memory):
            return [decoding.NativeCache(self, memory, layout, beam)]
        caches = []
        for layer in self.decoder:
            assert isinstance(layer, DecoderLayer)
            assert isinstance(layer.source.sub_layer, Attention)
            caches.append(LayerCache(*layer.source.sub_layer.project_memory(memory, layout), layout.padding_mask, beam))
        return caches

    def step(self, ids: Tensor, position: int, caches: Caches) -> Tensor:
        """The last word of every hypothesis `[rows, beam]` -> logits of the next `[rows, beam, vocabulary]`."""
        if isinstance(caches[0], decoding.NativeCache):
            return caches[0].step(ids, position)
        x = self._embed(ids, torch.full_like(ids, position), position + 1)  # [rows, beam, width]
        for layer, cache in zip(self.decoder, caches, strict=True):
            assert isinstance(layer, DecoderLayer)
            assert isinstance(cache, LayerCache)
            x = layer.step(x, cache)
        return self.logits(self.decoder_norm(x))
