"""Translation: sentence pairs, an encoder-decoder, label-smoothed cross-entropy, sacreBLEU."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep import faults
from lockstep.ablation import read_ablation
from lockstep.data.corpus.batches import GlobalBatch, Order, Position, split_by_words
from lockstep.data.corpus.binary_corpus import Corpus, ParallelSet
from lockstep.data.data_settings import BatchSettings
from lockstep.models.make_model import TranslationModel, make_model
from lockstep.models.model_settings import TranslationSettings
from lockstep.models.packed import Layout, choose_cuts
from lockstep.tasks.output_loss import cross_entropy
from lockstep.tasks.task import Scores, total
from lockstep.team import Team
from lockstep.translate.decode import compute_bleu, translate_packed
from lockstep.translate.search_settings import SearchSettings


@dataclass
class PairBatch:
    """Sentence pairs, packed. `target_in` starts with the begin mark, `target_out` ends with the end mark."""

    source: Tensor  # [source words]
    source_layout: Layout
    target_in: Tensor  # [target words]
    target_out: Tensor  # [target words]
    target_layout: Layout
    source_words: int
    target_words: int  # 0: the batch counts for nothing

    def map(self, move: Callable[[Tensor], Tensor]) -> "PairBatch":
        return PairBatch(
            move(self.source),
            self.source_layout.map(move),
            move(self.target_in),
            move(self.target_out),
            self.target_layout.map(move),
            self.source_words,
            self.target_words,
        )

    def pin(self) -> "PairBatch":
        return self.map(Tensor.pin_memory)

    def to(self, device: torch.device) -> "PairBatch":
        return self if device.type == "cpu" else self.map(lambda tensor: tensor.to(device, non_blocking=True))


def pair_batch(pairs: ParallelSet, indices: np.ndarray, bos: int) -> PairBatch:
    """Gathers sentences without any Python work per word. A worker without a share gets a sentence that counts for
    nothing, because it still has to take part in the step."""
    empty = len(indices) == 0
    if empty:
        indices = np.array([0])
    source, source_lengths = pairs.source.gather(indices)
    target, target_lengths = pairs.target.gather(indices)
    cuts = choose_cuts(source_lengths, target_lengths)
    shifted = np.empty_like(target)
    shifted[1:] = target[:-1]
    shifted[np.cumsum(target_lengths) - target_lengths] = bos
    return PairBatch(
        torch.from_numpy(source),
        Layout.from_lengths(source_lengths, cuts),
        torch.from_numpy(shifted),
        torch.from_numpy(target),
        Layout.from_lengths(target_lengths, cuts),
        0 if empty else len(source),
        0 if empty else len(target),
    )


class TranslationLoss(nn.Module):
    """A translation model whose forward is its training loss: a sum over target words, not a mean."""

    def __init__(self, model: TranslationModel, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing

    def guesses(self, batch: PairBatch) -> Tensor:
        """A vector for each target word, `[target words, width]`, made from the words before it."""
        return self.model(batch.source, batch.source_layout, batch.target_in, batch.target_layout)

    def forward(self, batch: PairBatch) -> Tensor:
        loss = cross_entropy(self.guesses(batch), self.model.output_weight, batch.target_out, self.label_smoothing)
        return loss if batch.target_words else loss * 0.0


class Translation:
    metric = "sacrebleu"
    higher_is_better = True
    unit = "words"

    def __init__(
        self,
        corpus: Corpus,
        batch: BatchSettings,
        model: TranslationSettings,
        search: SearchSettings,
        label_smoothing: float,
        seed: int,
    ) -> None:
        self.corpus, self.model_settings, self.search = corpus, model, search
        self.label_smoothing = label_smoothing
        self.width = model.width
        self.data_folder, self.data_facts = corpus.folder, dict(corpus.facts)
        pairs = corpus.set("train")
        self.pairs = pairs if batch.fixed_length is None else pairs.cut(batch.fixed_length)
        self.order = Order(self.pairs.source.lengths, self.pairs.target.lengths, batch, seed)
        if not read_ablation().active:  # a trial may compute what is one worker's share of a step
            self.order.check()

    def module(self) -> TranslationLoss:
        return TranslationLoss(make_model(self.model_settings, self.corpus.vocabulary.size), self.label_smoothing)

    def batches(self, epoch: int, cursor: int) -> Iterator[GlobalBatch]:
        return self.order.batches(Position(epoch, cursor))

    def micro_batches(self, share: np.ndarray, step: int) -> list[PairBatch]:
        bos = self.corpus.vocabulary.bos
        return [pair_batch(self.pairs, self._longest_first(piece), bos) for piece in self.order.micro_batches(share)]

    def _longest_first(self, indices: np.ndarray) -> np.ndarray:
        """So that attention computes sentences of similar length together. Which sentences make a step stays as it is."""
        both = self.order.source_lengths[indices] + self.order.target_lengths[indices]
        return indices[np.argsort(-both, kind="stable")]

    def example(self) -> PairBatch:
        return pair_batch(self.pairs, np.array([0]), self.corpus.vocabulary.bos)

    def evaluate(self, module: nn.Module, team: Team, autocast: Callable[[], Any]) -> Scores:
        return evaluate(module, self.corpus, "validation", self.search, team, autocast)

    def export(self, module: nn.Module, folder: Path) -> None:
        from safetensors.torch import save

        assert isinstance(module, TranslationLoss)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in module.model.state_dict().items()}
        (folder / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
        config = {
            "model": self.model_settings.model_dump(mode="json"),
            "languages": self.corpus.facts["languages"],
            "search": self.search.model_dump(mode="json"),
            "vocabulary_size": self.corpus.vocabulary.size,
        }
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        (folder / "vocabulary.model").write_bytes(self.corpus.vocabulary.model)


@torch.no_grad()
def evaluate(
    module: nn.Module, corpus: Corpus, name: str, search: SearchSettings, team: Team, autocast: Callable[[], Any]
) -> Scores:
    """Loss and both scores on a held-out set, the work split over the workers."""
    assert isinstance(module, TranslationLoss)
    pairs, vocabulary = corpus.set(name), corpus.vocabulary
    by_length = np.argsort(pairs.source.lengths, kind="stable")[::-1]
    mine = by_length[team.rank :: team.size]
    loss, matches = torch.zeros(2, dtype=torch.float64), PieceMatches()  # loss: sum, words
    hypotheses: list[tuple[int, str]] = []
    with autocast():
        for part in split_by_words(mine, pairs.source.lengths, search.batch_words):
            batch = pair_batch(pairs, part, vocabulary.bos).to(team.device)
            logits = module.model.logits(module.guesses(batch)).float()
            loss[0] += F.cross_entropy(logits, batch.target_out, reduction="sum").double().cpu()
            loss[1] += batch.target_words
            matches.add(logits.argmax(-1), batch.target_out, batch.target_layout)
            faults.at("evaluate")
            texts = translate_packed(module.model, batch.source, batch.source_layout, search, vocabulary)
            hypotheses += zip(part.tolist(), texts, strict=True)
    sums = total(team, torch.cat([loss, matches.counts]))
    everything = dict(pair for part in team.gather(hypotheses) for pair in part)
    translations = [everything[i] for i in range(len(everything))]
    sources, references = corpus.texts(name)
    score, signature = compute_bleu(translations, references)
    examples = tuple(zip(sources[:10], translations[:10], references[:10], strict=True))
    values = {"loss": sums[0] / sums[1], "sacrebleu": score, "Eval_BLEU_Score": PieceMatches.score(sums[2:])}
    return Scores(values, signature, examples)


class PieceMatches:
    """Counts for `Eval_BLEU_Score` as the old recipe had it: BLEU over pieces of the word-by-word best guesses while
    the right previous words are given, from 0 to 1. It is comparable with that recipe's curves and with nothing else."""

    ORDERS = 4

    def __init__(self) -> None:
        self.counts = torch.zeros(2 * self.ORDERS + 2, dtype=torch.float64)  # matches, guesses per order; two lengths

    def add(self, guesses: Tensor, right: Tensor, layout: Layout) -> None:
        cuts = np.cumsum(layout.lengths)[:-1]
        pairs = zip(np.split(guesses.cpu().numpy(), cuts), np.split(right.cpu().numpy(), cuts), strict=True)
        for guess, reference in pairs:
            guess, reference = guess[:-1], reference[:-1]  # without the end mark
            self.counts[-2] += len(guess)
            self.counts[-1] += len(reference)
            for n in range(1, self.ORDERS + 1):
                found, there = _ngrams(guess, n), _ngrams(reference, n)
                self.counts[2 * n - 2] += sum(min(count, there.get(gram, 0)) for gram, count in found.items())
                self.counts[2 * n - 1] += sum(found.values())

    @classmethod
    def score(cls, counts: list[float]) -> float:
        precisions = [counts[2 * n] / max(1.0, counts[2 * n + 1]) for n in range(cls.ORDERS)]
        if min(precisions) == 0.0:
            return 0.0
        brevity = min(1.0, float(np.exp(1.0 - counts[-1] / max(1.0, counts[-2]))))
        return brevity * float(np.exp(np.mean(np.log(precisions))))


def _ngrams(ids: np.ndarray, n: int) -> dict[tuple[int, ...], int]:
    grams: dict[tuple[int, ...], int] = {}
    values = ids.tolist()
    for i in range(len(values) - n + 1):
        gram = tuple(values[i : i + n])
        grams[gram] = grams.get(gram, 0) + 1
    return grams
