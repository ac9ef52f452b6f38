"""What a tutorial gives: `nn.Transformer` on padded batches. The yardstick that `speed.py` runs beside Lockstep.

    python benchmarks/yardstick.py CORPUS [--steps 12] [--threads 2]

Sentences in random order, each batch padded to its longest, bool masks, a table each for source, target and output,
label smoothing, `torch.optim.Adam`, fp32. CORPUS is a prepared corpus folder: both programs train on the same pieces.
Prints one JSON object; target words are pieces and end marks, without padding.
"""

import argparse
import json
import math
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.data.corpus.binary_corpus import Corpus

WARMUP_STEPS = 3


class Tutorial(nn.Module):
    def __init__(self, vocabulary: int, layers: int, width: int, feed_forward: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.transformer = nn.Transformer(width, heads, layers, layers, feed_forward, dropout, batch_first=True)
        self.dropout, self.output = nn.Dropout(dropout), nn.Linear(width, vocabulary)
        self.scale = math.sqrt(width)
        place = torch.arange(1000)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        self.places = torch.stack([place.sin(), place.cos()], -1).flatten(1)

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        return self.dropout(table(ids) * self.scale + self.places[: ids.shape[1]])

    def forward(self, source: Tensor, target: Tensor, pad: int) -> Tensor:
        future = torch.triu(torch.ones(target.shape[1], target.shape[1], dtype=torch.bool), 1)
        x = self.transformer(
            self.embed(self.source, source),
            self.embed(self.target, target),
            tgt_mask=future,
            src_key_padding_mask=source == pad,
            tgt_key_padding_mask=target == pad,
            memory_key_padding_mask=source == pad,
        )
        return self.output(x)


def padded(ids: np.ndarray, lengths: np.ndarray, pad: int) -> Tensor:
    pieces = list(torch.split(torch.from_numpy(ids), lengths.tolist()))
    return nn.utils.rnn.pad_sequence(pieces, batch_first=True, padding_value=pad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=266)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--feed-forward", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    corpus = Corpus.open(options.corpus)
    pairs, vocabulary = corpus.set("train"), corpus.vocabulary
    pad = vocabulary.size  # an id of its own
    model = Tutorial(pad + 1, options.layers, options.width, options.feed_forward, options.heads, options.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    criterion = nn.CrossEntropyLoss(ignore_index=pad, label_smoothing=0.1)
    order = np.random.default_rng(1).permutation(len(pairs.target.lengths))
    words, places, seconds = [], [], []
    for step in range(options.steps):
        chosen = order[step * options.sentences : (step + 1) * options.sentences]
        begin = time.perf_counter()
        source = padded(*pairs.source.gather(chosen), pad)
        ids, lengths = pairs.target.gather(chosen)
        target_out = padded(ids, lengths, pad)
        target_in = torch.cat([torch.full((len(chosen), 1), vocabulary.bos), target_out[:, :-1]], 1)
        logits = model(source, target_in, pad)
        loss = criterion(logits.flatten(0, 1), target_out.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - begin)
        words.append(int(lengths.sum()))
        places.append(target_out.numel())
    rate = statistics.median(w / s for w, s in list(zip(words, seconds, strict=True))[WARMUP_STEPS:])
    print(json.dumps({"words_per_second": rate, "padding": 1 - sum(words) / sum(places)}))


if __name__ == "__main__":
    main()
