"""The LSTM translator of field report 5. It knows words as packed ids and returns packed vectors; it knows nothing of
loss or training.

How the report's 19 parameter tensors are read here. Three are large: source embedding, target embedding and projection,
97.6 MB each, so the projection sees 512 values and not a word's vector and its context side by side. The other 16 are a
kernel and a bias for each of 8 LSTM units: two directions of two encoder layers, and four decoder layers. A kernel holds
the weights of input and state side by side, and there is one bias, where torch has two of either. Nothing is left for
attention: the first decoder layer's output is compared with the source words as it is, and what it finds is given to the
layers above beside their input. So every layer runs over whole sentences in one call, without input feeding.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.models.dropout import Dropout
from lockstep.models.model_settings import LstmSettings
from lockstep.models.packed import AttentionGrid, Layout

State = tuple[Tensor, Tensor]
"""What LSTM units remember: output and cell, `[units, rows, width]` each."""


class Lookup(nn.Embedding):
    """A table that nothing reads but a lookup: a step needs and changes some rows only."""

    by_rows = True


class LstmCell(nn.Module):
    """The parameters of one LSTM in one direction. Gates in torch's order: input, forget, cell, output."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.kernel = nn.Parameter(torch.empty(4 * width, inputs + width))
        self.bias = nn.Parameter(torch.empty(4 * width))
        bound = math.sqrt(3.0 / (inputs + width))  # inputs of variance 1 give gates of variance 1
        nn.init.uniform_(self.kernel, -bound, bound)
        nn.init.zeros_(self.bias)
        self.bias.detach()[width : 2 * width].fill_(1.0)  # remember, until told to forget

    def weights(self) -> list[Tensor]:
        """As torch's kernels want them: for the input, for the state, and the bias twice, of which one is zero."""
        width = self.kernel.shape[1] - self.inputs
        return [*self.kernel.split([self.inputs, width], dim=1), self.bias, torch.zeros_like(self.bias)]


class LstmLayer(nn.Module):
    """LSTM units that read the same words, one forward and perhaps one backward."""

    def __init__(self, inputs: int, width: int, directions: int = 1) -> None:
        super().__init__()
        self.width = width
        self.units = nn.ModuleList(LstmCell(inputs, width) for _ in range(directions))

    def forward(self, x: Tensor, counts: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """All words `[words, inputs]` in the order of reading -> `[words, directions x width]`, and the last state."""
        directions = len(self.units)
        if state is None:
            zeros = x.new_zeros(directions, int(counts[0]), self.width)
            state = zeros, zeros
        # In one piece each: cuDNN's copy into its own layout takes no matrices that are cut out of others.
        weights = [weight.contiguous() for unit in self.units for weight in unit.weights()]  # type: ignore[operator]
        # In fp32: not every CPU has a bf16 kernel for sentences of equal length, and on CUDA autocast would take fp16 for
        # cuDNN, whatever was asked for, without the loss scaling that it needs.
        with torch.autocast(x.device.type, enabled=False):
            state = state[0].float(), state[1].float()
            output, *last = torch.lstm(x.float(), counts, state, weights, True, 1, 0.0, self.training, directions == 2)
        return output, (last[0], last[1])

    def step(self, x: Tensor, state: State) -> State:
        """One more word of every hypothesis: `[hypotheses, inputs]`."""
        (unit,) = self.units
        assert isinstance(unit, LstmCell)
        with torch.autocast(x.device.type, enabled=False):
            return torch.lstm_cell(x.float(), (state[0].float(), state[1].float()), *unit.weights())


@dataclass
class EncoderMemory:
    """What the encoder knows of the source sentences."""

    words: Tensor  # [rows, longest, width]
    state: State  # in which each unit ended, in the order of the batch


class LstmCache:
    """The state of every decoder layer per hypothesis, and the source words per sentence."""

    def __init__(self, words: Tensor, hidden: Tensor | None, states: list[State]) -> None:
        self.words, self.hidden = words, hidden
        self.states = states  # [hypotheses, width] each

    def select(self, hypotheses: Tensor, sentences: Tensor | None) -> None:
        """Keep and reorder hypotheses; keep sentences when some have left the batch."""
        self.states = [(h.index_select(0, hypotheses), c.index_select(0, hypotheses)) for h, c in self.states]
        if sentences is not None:
            self.words = self.words.index_select(0, sentences)
            self.hidden = None if self.hidden is None else self.hidden.index_select(0, sentences)


def look(query: Tensor, words: Tensor, hidden: Tensor | None) -> Tensor:
    """Dot attention of `[rows, queries, width]` to `[rows, longest, width]`, without parameters."""
    scores = query @ words.transpose(1, 2)  # [rows, queries, longest]
    if hidden is not None:
        scores = scores + hidden.squeeze(1)
    return scores.softmax(-1, dtype=torch.float32).to(words.dtype) @ words


class Lstm(nn.Module):
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
        nn.init.uniform_(self.projection.weight, -0.1, 0.1)  # embeddings have torch's variance of 1, which units expect

    def forward(self, source: Tensor, source_layout: Layout, target: Tensor, layout: Layout) -> Tensor:
        """A vector for each target word, made from the source and the target words so far: `[target words, width]`."""
        return self.decode(target, layout, self.encode(source, source_layout), source_layout)

    def encode(self, ids: Tensor, layout: Layout) -> EncoderMemory:
        """Source ids `[words]` -> a vector for each, the sum of both directions."""
        reading = AttentionGrid.of(layout, ids.device)
        x = self.source_embedding(ids[reading.order])
        ends = []
        for layer in self.encoder:
            x, end = layer(self.dropout(x), reading.counts)
            ends.append(end)
        outputs, cells = (reading.unsorted(torch.cat(parts)) for parts in zip(*ends, strict=True))
        return EncoderMemory(reading.spread(x.unflatten(1, (2, -1)).sum(1)), (outputs, cells))

    def _begin(self, memory: EncoderMemory) -> list[State]:
        """The state in which each decoder layer begins: that in which the encoder unit of the same number ended, from
        layer to layer and forward before backward; layers without such a unit begin with zeros."""
        ends: list[State] = list(zip(*memory.state, strict=True))
        zeros = torch.zeros_like(ends[0][0])
        return (ends + [(zeros, zeros)] * len(self.decoder))[: len(self.decoder)]

    def decode(self, ids: Tensor, layout: Layout, memory: EncoderMemory, memory_layout: Layout) -> Tensor:
        """Target ids so far `[words]` -> a vector for the next word at each place `[words, width]`."""
        reading = AttentionGrid.of(layout, ids.device)
        x, context = self.target_embedding(ids[reading.order]), None
        for layer, state in zip(self.decoder, self._begin(memory), strict=True):
            beside = self.dropout(x if context is None else torch.cat([x, context], dim=1))
            outputs, cells = (reading.sorted(part.unsqueeze(0)) for part in state)
            x, _ = layer(beside, reading.counts, (outputs, cells))
            if context is None:
                context = reading.gather(look(reading.spread(x), memory.words, memory_layout.hidden))
        return reading.pack(self.dropout(x))

    @property
    def output_weight(self) -> Tensor:
        """`[vocabulary, width]`: its products with a vector are the scores of the words."""
        return self.projection.weight

    def logits(self, x: Tensor) -> Tensor:
        return F.linear(x, self.output_weight)

    def start(self, memory: EncoderMemory, layout: Layout, beam: int) -> list[LstmCache]:
        """The state for decoding `beam` hypotheses of every source sentence."""
        states = [(h.repeat_interleave(beam, 0), c.repeat_interleave(beam, 0)) for h, c in self._begin(memory)]
        return [LstmCache(memory.words, layout.hidden, states)]

    def step(self, ids: Tensor, position: int, caches: list[LstmCache]) -> Tensor:
        """The last word of every hypothesis `[rows, beam]` -> logits for the next `[rows, beam, vocabulary]`."""
        (cache,) = caches
        x, context = self.target_embedding(ids.flatten()), None  # [hypotheses, width]
        for i, layer in enumerate(self.decoder):
            assert isinstance(layer, LstmLayer)
            beside = x if context is None else torch.cat([x, context], dim=1)
            cache.states[i] = layer.step(beside, cache.states[i])
            x = cache.states[i][0]
            if context is None:
                context = look(x.view(*ids.shape, -1), cache.words, cache.hidden).flatten(0, 1)
        return self.logits(x.view(*ids.shape, -1))
