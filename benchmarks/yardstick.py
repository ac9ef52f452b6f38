"""The training loop of a tutorial: `nn.Transformer` on padded batches. `speed.py` compares Lockstep with it.

    python benchmarks/yardstick.py CORPUS [--steps 12] [--threads 2]

Sentences are in random order, each batch is padded to its longest sentence, masks are bool, source, target and output have
separate embeddings, with label smoothing, `torch.optim.Adam` and fp32. CORPUS is the folder of a prepared corpus, so both
programs train on the same pieces. Prints one JSON object. Target words are pieces and end marks, without padding.
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
    """A Transformer as tutorials build it."""

    def __init__(self, vocabulary: int, layers: int, width: int, feed_forward: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.transformer = nn.Transformer(width, heads, layers, layers, feed_forward, dropout, batch_first=True)
        self.dropout, self.output = nn.Dropout(dropout), nn.Linear(width, vocabulary)
        self.scale = math.sqrt(width)
        angle = torch.arange(1000)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        self.positions = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        return self.dropout(table(ids) * self.scale + self.positions[: ids.shape[1]])

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


def pad_batch(ids: np.ndarray, lengths: np.ndarray, pad: int) -> Tensor:
    """Returns the sentences of a flat vector as a padded matrix, [sentences, longest]."""
    pieces = list(torch.split(torch.from_numpy(ids), lengths.tolist()))
    return nn.utils.rnn.pad_sequence(pieces, batch_first=True, padding_value=pad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="folder of a prepared corpus")
    parser.add_argument("--steps", type=int, default=12, help="steps, of which the first three are warm-up")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch")
    parser.add_argument("--sentences", type=int, default=266, help="sentences of a batch")
    parser.add_argument("--layers", type=int, default=3, help="layers of the encoder, and of the decoder")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--feed-forward", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    corpus = Corpus.open(options.corpus)
    pairs, vocabulary = corpus.set("train"), corpus.vocabulary
    pad = vocabulary.size  # an additional id
    model = Tutorial(pad + 1, options.layers, options.width, options.feed_forward, options.heads, options.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    criterion = nn.CrossEntropyLoss(ignore_index=pad, label_smoothing=0.1)
    order = np.random.default_rng(1).permutation(len(pairs.target.lengths))
    words, computed, seconds = [], [], []
    for step in range(options.steps):
        chosen = order[step * options.sentences : (step + 1) * options.sentences]
        start = time.perf_counter()
        source = pad_batch(*pairs.source.gather(chosen), pad)
        ids, lengths = pairs.target.gather(chosen)
        target_out = pad_batch(ids, lengths, pad)
        target_in = torch.cat([torch.full((len(chosen), 1), vocabulary.bos), target_out[:, :-1]], 1)
        logits = model(source, target_in, pad)
        loss = criterion(logits.flatten(0, 1), target_out.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - start)
        words.append(int(lengths.sum()))
        computed.append(target_out.numel())
    rate = statistics.median(w / s for w, s in list(zip(words, seconds, strict=True))[WARMUP_STEPS:])
    print(json.dumps({"words_per_second": rate, "padding": 1 - sum(words) / sum(computed)}))


if __name__ == "__main__":
    main()
