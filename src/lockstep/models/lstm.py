"""The LSTM translator of field report 5: packed word ids in, packed vectors out. Loss and training are elsewhere.

The report lists 19 parameter tensors. Three are large, 97.6 MB each: source embedding, target embedding and projection.
So the projection takes 512 values, not a word's vector concatenated with its context. The other 16 are a kernel and a
bias for each of 8 LSTM cells: two directions of two encoder layers, and four decoder layers. A kernel holds the input and
the recurrent weights side by side, with one bias, where torch has two matrices and two biases. No parameters are left for
attention: the output of the first decoder layer attends to the source words by plain dot products, and the context is
concatenated to the input of the layers above. Without input feeding, every layer runs over all words in one call.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.models.dropout import Dropout
from lockstep.models.model_settings import LstmSettings
from lockstep.models.packed import Layout, TimeMajorOrder

State = tuple[Tensor, Tensor]
"""Hidden and cell state, `[directions, rows, width]` each."""


class Lookup(nn.Embedding):
    """An embedding that is used for lookups only, not as output weights: a step reads and changes only some of its rows."""

    by_rows = True


class LstmCell(nn.Module):
    """The parameters of an LSTM layer in one direction. The gates are in torch's order: input, forget, cell, output."""

    def __init__(self, input_size: int, width: int) -> None:
        super().__init__()
        self.input_size = input_size
        self.kernel = nn.Parameter(torch.empty(4 * width, input_size + width))
        self.bias = nn.Parameter(torch.empty(4 * width))
        bound = math.sqrt(3.0 / (input_size + width))  # inputs of variance 1 give gates of variance 1
        nn.init.uniform_(self.kernel, -bound, bound)
        nn.init.zeros_(self.bias)
        self.bias.detach()[width : 2 * width].fill_(1.0)  # forget gates start open

    def split_weights(self) -> list[Tensor]:
        """Returns what torch's kernels take: input weights `[4 * width, input_size]`, recurrent weights
        `[4 * width, width]`, and two biases `[4 * width]`, of which the second is zero."""
        width = self.kernel.shape[1] - self.input_size
        return [*self.kernel.split([self.input_size, width], dim=1), self.bias, torch.zeros_like(self.bias)]


class LstmLayer(nn.Module):
    """One LSTM layer, in one direction or both."""

    def __init__(self, input_size: int, width: int, directions: int = 1) -> None:
        super().__init__()
        self.width = width
        self.units = nn.ModuleList(LstmCell(input_size, width) for _ in range(directions))

    @property
    def _cells(self) -> list[LstmCell]:
        return [unit for unit in self.units if isinstance(unit, LstmCell)]

    def forward(self, x: Tensor, batch_sizes: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Words in time-major order `[words, input_size]` -> `[words, directions * width]`, and the final state."""
        directions = len(self.units)
        if state is None:
            zeros = x.new_zeros(directions, int(batch_sizes[0]), self.width)
            state = zeros, zeros
        # cuDNN copies the weights into its own layout and requires contiguous matrices.
        weights = [weight.contiguous() for cell in self._cells for weight in cell.split_weights()]
        # In fp32: not every CPU has a bf16 kernel for sentences of equal length, and on CUDA autocast selects fp16 for
        # cuDNN whatever its dtype, without the loss scaling that fp16 needs.
        with torch.autocast(x.device.type, enabled=False):
            state = state[0].float(), state[1].float()
            output, *last = torch.lstm(
                x.float(), batch_sizes, state, weights, True, 1, 0.0, self.training, directions == 2
            )
        return output, (last[0], last[1])

    def step(self, x: Tensor, state: State) -> State:
        """Returns the state after one more word of every hypothesis, `[hypotheses, input_size]`."""
        (cell,) = self._cells
        with torch.autocast(x.device.type, enabled=False):
            return torch.lstm_cell(x.float(), (state[0].float(), state[1].float()), *cell.split_weights())


@dataclass
class EncoderMemory:
    """The encoder's output."""

    words: Tensor  # [rows, longest, width] the sum of both directions
    state: State  # the final state of every encoder cell, [cells, rows, width] each


class LstmCache:
    """What decoding carries from step to step: the state of every decoder layer per hypothesis, and the source words per
    sentence."""

    def __init__(self, words: Tensor, padding_mask: Tensor | None, states: list[State]) -> None:
        self.words, self.padding_mask = words, padding_mask
        self.states = states  # [hypotheses, width] each

    def select(self, hypotheses: Tensor, sentences: Tensor | None) -> None:
        """Keeps and reorders these hypotheses, and keeps these sentences when some have left the batch."""
        self.states = [(h.index_select(0, hypotheses), c.index_select(0, hypotheses)) for h, c in self.states]
        if sentences is not None:
            self.words = self.words.index_select(0, sentences)
            if self.padding_mask is not None:
                self.padding_mask = self.padding_mask.index_select(0, sentences)


def dot_product_attention(query: Tensor, words: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Attention of `[rows, queries, width]` to `[rows, longest, width]`, without parameters."""
    scores = query @ words.transpose(1, 2)  # [rows, queries, longest]
    if padding_mask is not None:
        scores = scores + padding_mask.squeeze(1)
    return scores.softmax(-1, dtype=torch.float32).to(words.dtype) @ words


class Lstm(nn.Module):
    """Bidirectional LSTM encoder, LSTM decoder with dot-product attention, separate embeddings and output weights."""

    def __init__(self, settings: LstmSettings, vocabulary_size: int) -> None:
        super().__init__()
        self.settings = settings
        width = settings.width
        self.source_embedding = Lookup(vocabulary_size, width)
        self.target_embedding = Lookup(vocabulary_size, width)
        self.projection = nn.Linear(width, vocabulary_size, bias=False)
        self.dropout = Dropout(settings.dropout)
        self.encoder = nn.ModuleList(
            LstmLayer(width if i == 0 else 2 * width, width, directions=2) for i in range(settings.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            LstmLayer(width if i == 0 else 2 * width, width) for i in range(settings.decoder_layers)
        )
        nn.init.uniform_(
            self.projection.weight, -0.1, 0.1
        )  # embeddings keep torch's variance of 1, which the cells expect

    def forward(self, source: Tensor, source_layout: Layout, target: Tensor, layout: Layout) -> Tensor:
        """Returns a vector for each target word, from the source and the target words so far: `[target words, width]`."""
        return self.decode(target, layout, self.encode(source, source_layout), source_layout)

    def encode(self, ids: Tensor, layout: Layout) -> EncoderMemory:
        """Packed source ids `[words]` -> a vector for each word, padded."""
        order = TimeMajorOrder.from_layout(layout, ids.device)
        x = self.source_embedding(ids[order.packed_index])  # [words, width], time-major
        final_states = []
        for layer in self.encoder:
            x, state = layer(self.dropout(x), order.batch_sizes)  # [words, 2 * width]
            final_states.append(state)
        hidden, cell = (order.unsort_rows(torch.cat(parts)) for parts in zip(*final_states, strict=True))
        return EncoderMemory(order.pad(x.unflatten(1, (2, -1)).sum(1)), (hidden, cell))

    def _initial_states(self, memory: EncoderMemory) -> list[State]:
        """Returns the initial state of each decoder layer, `[rows, width]`: the final state of the encoder cell with the
        same number, counted by layers and forward before backward. Layers beyond the last cell start from zeros."""
        final_states: list[State] = list(zip(*memory.state, strict=True))
        zeros = torch.zeros_like(final_states[0][0])
        return (final_states + [(zeros, zeros)] * len(self.decoder))[: len(self.decoder)]

    def decode(self, ids: Tensor, layout: Layout, memory: EncoderMemory, memory_layout: Layout) -> Tensor:
        """Packed target ids `[words]` -> a vector for the word after each, `[words, width]`."""
        order = TimeMajorOrder.from_layout(layout, ids.device)
        x, context = self.target_embedding(ids[order.packed_index]), None  # [words, width], time-major
        for layer, state in zip(self.decoder, self._initial_states(memory), strict=True):
            inputs = self.dropout(x if context is None else torch.cat([x, context], dim=1))  # [words, input_size]
            hidden, cell = (order.sort_rows(part.unsqueeze(0)) for part in state)
            x, _ = layer(inputs, order.batch_sizes, (hidden, cell))
            if context is None:
                context = order.unpad(dot_product_attention(order.pad(x), memory.words, memory_layout.padding_mask))
        return order.pack(self.dropout(x))

    @property
    def output_weight(self) -> Tensor:
        """The output projection, `[vocabulary, width]`."""
        return self.projection.weight

    def logits(self, x: Tensor) -> Tensor:
        return F.linear(x, self.output_weight)

    def start(self, memory: EncoderMemory, layout: Layout, beam: int) -> list[LstmCache]:
        """Returns the cache for decoding `beam` hypotheses of every source sentence."""
        states = [(h.repeat_interleave(beam, 0), c.repeat_interleave(beam, 0)) for h, c in self._initial_states(memory)]
        return [LstmCache(memory.words, layout.padding_mask, states)]

    def step(self, ids: Tensor, position: int, caches: list[LstmCache]) -> Tensor:
        """The last word of every hypothesis `[rows, beam]` -> logits of the next `[rows, beam, vocabulary]`."""
        (cache,) = caches
        x, context = self.target_embedding(ids.flatten()), None  # [hypotheses, width]
        for i, layer in enumerate(self.decoder):
            assert isinstance(layer, LstmLayer)
            inputs = x if context is None else torch.cat([x, context], dim=1)  # [hypotheses, input_size]
            cache.states[i] = layer.step(inputs, cache.states[i])
            x = cache.states[i][0]
            if context is None:
                query = x.view(*ids.shape, -1)  # [rows, beam, width]
                context = dot_product_attention(query, cache.words, cache.padding_mask).flatten(0, 1)
        return self.logits(x.view(*ids.shape, -1))
