"""The Transformer. It knows words as packed ids and returns packed vectors; it knows nothing of loss or training."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.models.dropout import Dropout, dropout, relu_dropout
from lockstep.models.model_settings import TransformerSettings
from lockstep.models.packed import Layout

EXPLICIT_LIMIT = 128
"""On CPU, up to this many keys, softmax(QK)V written out is faster than the fused kernel and its slow backward."""


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, drop: float) -> Tensor:
    """Scaled dot-product attention over `[rows, heads, length, size]`; `mask` is added to the scores.

    The path depends on device and shape only, so the same batch always takes the same path.
    """
    if query.device.type != "cpu":
        return _fused(query, key, value, mask, causal, drop)
    # On CPU in fp32: softmax and its products are slow in bf16, and so is the fused kernel's backward pass.
    with torch.autocast("cpu", enabled=False):
        query, key, value = query.float(), key.float(), value.float()
        if key.shape[2] > EXPLICIT_LIMIT:
            return _fused(query, key, value, mask, causal, drop)
        scores = (query * (1.0 / math.sqrt(query.shape[-1]))) @ key.transpose(2, 3)  # [rows, heads, query, key]
        if mask is not None:
            scores = scores + mask
        if causal:
            scores = scores + _future(query.shape[2], query.device)
        return dropout(scores.softmax(-1), drop) @ value


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, drop: float) -> Tensor:
    if causal and mask is not None:
        mask, causal = mask + _future(query.shape[2], query.device), False
    if mask is not None:
        mask = mask.to(query.dtype)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=drop, is_causal=causal)


def ragged(query: Tensor, heads: int, drop: float) -> bool:
    """Can attention run on packed words? Flash kernels do, on Ampere and newer, in half precision and without dropout,
    with heads of some sizes."""
    size = query.shape[-1] // heads
    fits = query.dtype in (torch.bfloat16, torch.float16) and drop == 0.0 and size % 8 == 0 and size <= 256
    return query.is_cuda and fits and torch.cuda.get_device_capability(query.device) >= (8, 0)


def attend_ragged(
    query: Tensor, key: Tensor, value: Tensor, layout: Layout, memory_layout: Layout, heads: int, causal: bool
) -> Tensor:
    """Attention over packed words `[words, width]`, no grid and no padding."""
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = (x.unflatten(1, (heads, -1)) for x in (query, key, value))  # [words, heads, size]
    mixed = varlen_attn(
        query,
        key,
        value,
        layout.bounds,
        memory_layout.bounds,
        layout.longest,
        memory_layout.longest,
        window_size=(-1, 0) if causal else (-1, -1),
    )
    assert isinstance(mixed, Tensor)
    return mixed.flatten(1)


def _future(length: int, device: torch.device) -> Tensor:
    return torch.full((length, length), -math.inf, device=device).triu_(1)


class Attention(nn.Module):
    """Multi-head attention without biases. Queries and keys may come from different sentences (`memory`)."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        width, own = settings.width, settings.attention_dropout
        self.heads, self.dropout = settings.heads, settings.dropout if own is None else own
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def _heads(self, grid: Tensor) -> Tensor:
        rows, length, width = grid.shape
        return grid.view(rows, length, self.heads, width // self.heads).transpose(1, 2)  # [rows, heads, length, size]

    def _merge(self, grid: Tensor) -> Tensor:
        return grid.transpose(1, 2).flatten(2)  # [rows, length, width]

    def forward(self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout, causal: bool = False) -> Tensor:
        query, both = self.query(x), self.key_value(memory)
        if ragged(query, self.heads, self.dropout if self.training else 0.0):
            key, value = both.chunk(2, dim=-1)
            return self.output(attend_ragged(query, key, value, layout, memory_layout, self.heads, causal))
        if layout.parts:
            queries = query.split([part.words for part in layout.parts])
            keys = both.split([part.words for part in memory_layout.parts])
            parts = zip(queries, keys, layout.parts, memory_layout.parts, strict=True)
            return self.output(torch.cat([self._mix(*part, causal) for part in parts]).to(x.dtype))
        return self.output(self._mix(query, both, layout, memory_layout, causal).to(x.dtype))

    def _mix(self, query: Tensor, both: Tensor, layout: Layout, memory_layout: Layout, causal: bool) -> Tensor:
        """What packed queries find, on one grid: `[words, width]`."""
        key, value = self._keys(both, memory_layout)
        # A causal query never sees the empty places behind its own sentence's end that follow it.
        mask = None if causal else memory_layout.hidden
        drop = self.dropout if self.training else 0.0
        mixed = attend(self._heads(layout.spread(query)), key, value, mask, causal, drop)
        return layout.pack(self._merge(mixed))

    def keys(self, memory: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Keys and values of packed words, `[rows, heads, length, size]` each."""
        return self._keys(self.key_value(memory), layout)

    def _keys(self, both: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        key, value = layout.spread(both).chunk(2, dim=-1)
        return self._heads(key), self._heads(value)

    def look(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attention of `[rows, queries, width]` to keys that are there already (decoding)."""
        mixed = attend(self._heads(self.query(x)), key, value, mask, False, 0.0)
        return self.output(self._merge(mixed).to(x.dtype))


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden)
        self.outer = nn.Linear(hidden, width)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(relu_dropout(self.inner(x), self.dropout if self.training else 0.0))


class TransformerBlock(nn.Module):
    """The residual frame of a sub-layer: `x + dropout(f(norm(x)))`, or `norm(x + dropout(f(x)))` for post-norm."""

    def __init__(self, sub_layer: nn.Module, settings: TransformerSettings) -> None:
        super().__init__()
        self.sub_layer = sub_layer
        self.norm = nn.LayerNorm(settings.width)
        self.dropout = Dropout(settings.dropout)
        self.pre = settings.norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, change: Tensor) -> Tensor:
        x = x + self.dropout(change)
        return x if self.pre else self.norm(x)


class EncoderLayer(nn.Module):
    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.attention = TransformerBlock(Attention(settings), settings)
        self.feed_forward = TransformerBlock(
            FeedForward(settings.width, settings.feed_forward, settings.dropout), settings
        )

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        y = self.attention.before(x)
        x = self.attention.after(x, self.attention.sub_layer(y, layout, y, layout))
        return self.feed_forward.after(x, self.feed_forward.sub_layer(self.feed_forward.before(x)))


class DecoderLayer(nn.Module):
    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.attention = TransformerBlock(Attention(settings), settings)
        self.source = TransformerBlock(Attention(settings), settings)
        self.feed_forward = TransformerBlock(
            FeedForward(settings.width, settings.feed_forward, settings.dropout), settings
        )

    def forward(self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout) -> Tensor:
        y = self.attention.before(x)
        x = self.attention.after(x, self.attention.sub_layer(y, layout, y, layout, causal=True))
        y = self.source.before(x)
        x = self.source.after(x, self.source.sub_layer(y, layout, memory, memory_layout))
        return self.feed_forward.after(x, self.feed_forward.sub_layer(self.feed_forward.before(x)))

    def step(self, x: Tensor, cache: "LayerCache") -> Tensor:
        """One more word of every hypothesis: x is `[rows, beam, width]`."""
        rows, beam, width = x.shape
        attention, source = self.attention.sub_layer, self.source.sub_layer
        assert isinstance(attention, Attention)
        assert isinstance(source, Attention)
        y = self.attention.before(x).view(rows * beam, 1, width)
        key, value = cache.append(attention.key_value(y).squeeze(1))
        x = self.attention.after(x, attention.look(y, key, value, None).view(rows, beam, width))
        # All hypotheses of a sentence look at one copy of its source: they are the queries of one row.
        x = self.source.after(x, source.look(self.source.before(x), cache.source_key, cache.source_value, cache.hidden))
        return self.feed_forward.after(x, self.feed_forward.sub_layer(self.feed_forward.before(x)))


class LayerCache:
    """Keys and values of one decoder layer: of the words so far per hypothesis, and of the source per sentence.

    The words so far are `[length, 2, hypotheses, width]`, keys and values: a new word goes behind the others in place,
    and reordering hypotheses is one copy into a second buffer of the same size.
    """

    ROOM = 32  # words

    def __init__(self, source_key: Tensor, source_value: Tensor, hidden: Tensor | None, beam: int) -> None:
        rows, self.heads, _, self.size = source_key.shape
        self.source_key, self.source_value, self.hidden = source_key, source_value, hidden
        self.length = 0
        self._words = source_key.new_empty(self.ROOM, 2, rows * beam, self.heads * self.size)
        self._spare = torch.empty_like(self._words)

    def append(self, key_value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds a word, `[hypotheses, 2 x width]`; returns keys and values so far, `[hypotheses, heads, length, size]`."""
        if self.length == len(self._words):
            self._words = torch.cat([self._words, self._words])
            self._spare = torch.empty_like(self._words)
        self._words[self.length] = key_value.unflatten(1, (2, -1)).transpose(0, 1)
        self.length += 1
        words = self._words[: self.length].unflatten(3, (self.heads, self.size))
        key, value = words.permute(1, 2, 3, 0, 4).unbind()
        return key, value

    def select(self, hypotheses: Tensor, sentences: Tensor | None) -> None:
        """Keep and reorder hypotheses; keep sentences when some have left the batch."""
        if len(hypotheses) != self._spare.shape[2]:
            self._spare = self._words.new_empty(len(self._words), 2, len(hypotheses), self._words.shape[3])
        torch.index_select(self._words[: self.length], 2, hypotheses, out=self._spare[: self.length])
        self._words, self._spare = self._spare, self._words
        if sentences is not None:
            self.source_key = self.source_key.index_select(0, sentences)
            self.source_value = self.source_value.index_select(0, sentences)
            self.hidden = None if self.hidden is None else self.hidden.index_select(0, sentences)


class Transformer(nn.Module):
    def __init__(self, settings: TransformerSettings, vocabulary_size: int) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = nn.Embedding(vocabulary_size, settings.width)
        self.dropout = Dropout(settings.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(settings) for _ in range(settings.decoder_layers))
        final = settings.norm == "pre"  # post-norm layers end in a norm of their own
        self.encoder_norm = nn.LayerNorm(settings.width) if final else nn.Identity()
        self.decoder_norm = nn.LayerNorm(settings.width) if final else nn.Identity()
        self._waves: Tensor
        self.register_buffer("_waves", torch.empty(0, settings.width), persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        nn.init.normal_(self.embedding.weight, std=self.settings.width**-0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def _positions(self, length: int) -> Tensor:
        """The sine and cosine table, grown when a longer sentence comes: `[length, width]`."""
        if length > self._waves.shape[0]:
            width, size = self.settings.width, max(256, 2 * length)
            device = self.embedding.weight.device
            rate = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10_000.0) / width))
            angle = torch.arange(size, device=device)[:, None] * rate  # [size, width / 2]
            self._waves = torch.cat([angle.sin(), angle.cos()], dim=1)
        return self._waves

    def _embed(self, ids: Tensor, positions: Tensor, longest: int) -> Tensor:
        words = F.embedding(ids, self.embedding.weight) * math.sqrt(self.settings.width)
        return self.dropout(words + self._positions(longest)[positions])

    def forward(self, source: Tensor, source_layout: Layout, target: Tensor, layout: Layout) -> Tensor:
        """A vector for each target word, made from the source and the target words so far: `[target words, width]`."""
        return self.decode(target, layout, self.encode(source, source_layout), source_layout)

    def encode(self, ids: Tensor, layout: Layout) -> Tensor:
        """Source ids `[words]` -> memory `[words, width]`."""
        x = self._embed(ids, layout.positions, layout.longest)
        for layer in self.encoder:
            x = layer(x, layout)
        return self.encoder_norm(x)

    def decode(self, ids: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout) -> Tensor:
        """Target ids so far `[words]` -> a vector for the next word at each place `[words, width]`."""
        x = self._embed(ids, layout.positions, layout.longest)
        for layer in self.decoder:
            x = layer(x, layout, memory, memory_layout)
        return self.decoder_norm(x)

    @property
    def output_weight(self) -> Tensor:
        """`[vocabulary, width]`: its products with a vector are the scores of the words."""
        return self.embedding.weight

    def logits(self, x: Tensor) -> Tensor:
        return F.linear(x, self.output_weight)

    def start(self, memory: Tensor, layout: Layout, beam: int) -> list[LayerCache]:
        """Caches for decoding `beam` hypotheses of every source sentence."""
        caches = []
        for layer in self.decoder:
            assert isinstance(layer, DecoderLayer)
            assert isinstance(layer.source.sub_layer, Attention)
            caches.append(LayerCache(*layer.source.sub_layer.keys(memory, layout), layout.hidden, beam))
        return caches

    def step(self, ids: Tensor, position: int, caches: list[LayerCache]) -> Tensor:
        """The last word of every hypothesis `[rows, beam]` -> logits for the next `[rows, beam, vocabulary]`."""
        x = self._embed(ids, torch.full_like(ids, position), position + 1)  # [rows, beam, width]
        for layer, cache in zip(self.decoder, caches, strict=True):
            assert isinstance(layer, DecoderLayer)
            x = layer.step(x, cache)
        return self.logits(self.decoder_norm(x))
