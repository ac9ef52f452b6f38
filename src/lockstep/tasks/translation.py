"""Translation: sentence pairs, an encoder-decoder, label-smoothed cross-entropy, sacreBLEU."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

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
from lockstep.tasks.task import Autocast, Scores, sum_over_workers, write_model
from lockstep.team import Team
from lockstep.translate.decode import compute_bleu, translate_packed
from lockstep.translate.search_settings import SearchSettings


@dataclass
class PairBatch:
    """Packed sentence pairs: the sentences are laid end to end, without padding. Each sentence of `target_in` starts with
    the begin mark, each sentence of `target_out` ends with the end mark."""

    source: Tensor  # [source words]
    source_layout: Layout
    target_in: Tensor  # [target words]
    target_out: Tensor  # [target words]
    target_layout: Layout
    source_words: int
    target_words: int  # 0: the loss of the batch is ignored

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


def make_pair_batch(pairs: ParallelSet, indices: np.ndarray, bos: int) -> PairBatch:
    """Returns these sentence pairs as a packed batch. A worker with an empty share must still take part in the step: it
    gets a sentence whose loss is ignored."""
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
    """A translation model whose forward returns the training loss, summed over target words."""

    def __init__(self, model: TranslationModel, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing

    def compute_vectors(self, batch: PairBatch) -> Tensor:
        """Returns a vector for each target word, from the words before it: `[target words, width]`."""
        return self.model(batch.source, batch.source_layout, batch.target_in, batch.target_layout)

    def forward(self, batch: PairBatch) -> Tensor:
        vectors = self.compute_vectors(batch)
        loss = cross_entropy(vectors, self.model.output_weight, batch.target_out, self.label_smoothing)
        return loss if batch.target_words else loss * 0.0


class Translation:
    """The task `translation`."""

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
        if not read_ablation().active:  # an ablation may train on one worker's share of a step
            self.order.check()

    def module(self) -> TranslationLoss:
        return TranslationLoss(make_model(self.model_settings, self.corpus.vocabulary.size), self.label_smoothing)

    def batches(self, epoch: int, cursor: int) -> Iterator[GlobalBatch]:
        return self.order.batches(Position(epoch, cursor))

    def micro_batches(self, share: np.ndarray, step: int) -> list[PairBatch]:
        bos = self.corpus.vocabulary.bos
        return [
            make_pair_batch(self.pairs, self._sort_by_length(piece), bos) for piece in self.order.micro_batches(share)
        ]

    def _sort_by_length(self, indices: np.ndarray) -> np.ndarray:
        """Returns the sentences from the longest to the shortest, so that attention pads similar lengths together."""
        total = self.order.source_lengths[indices] + self.order.target_lengths[indices]
        return indices[np.argsort(-total, kind="stable")]

    def example(self) -> PairBatch:
        return make_pair_batch(self.pairs, np.array([0]), self.corpus.vocabulary.bos)

    def evaluate(self, module: nn.Module, team: Team, autocast: Autocast) -> Scores:
        return evaluate(module, self.corpus, "validation", self.search, team, autocast)

    def export(self, module: nn.Module, folder: Path) -> None:
        assert isinstance(module, TranslationLoss)
        config = {
            "model": self.model_settings.model_dump(mode="json"),
            "languages": self.corpus.facts["languages"],
            "search": self.search.model_dump(mode="json"),
            "vocabulary_size": self.corpus.vocabulary.size,
        }
        write_model(folder, module.model, config)
        (folder / "vocabulary.model").write_bytes(self.corpus.vocabulary.model)


@torch.no_grad()
def evaluate(
    module: nn.Module, corpus: Corpus, name: str, search: SearchSettings, team: Team, autocast: Autocast
) -> Scores:
    """Returns loss, sacreBLEU and Eval_BLEU_Score on a held-out set. Each worker translates a part of the sentences."""
    assert isinstance(module, TranslationLoss)
    pairs, vocabulary = corpus.set(name), corpus.vocabulary
    by_length = np.argsort(pairs.source.lengths, kind="stable")[::-1]
    mine = by_length[team.rank :: team.size]
    loss, matches = torch.zeros(2, dtype=torch.float64), PieceMatches()  # loss is [sum, words]
    hypotheses: list[tuple[int, str]] = []
    with autocast():
        for part in split_by_words(mine, pairs.source.lengths, search.batch_words):
            batch = make_pair_batch(pairs, part, vocabulary.bos).to(team.device)
            logits = module.model.logits(module.compute_vectors(batch)).float()  # [target words, vocabulary]
            loss[0] += F.cross_entropy(logits, batch.target_out, reduction="sum").double().cpu()
            loss[1] += batch.target_words
            matches.add(logits.argmax(-1), batch.target_out, batch.target_layout)
            faults.at("evaluate")
            texts = translate_packed(module.model, batch.source, batch.source_layout, search, vocabulary)
            hypotheses += zip(part.tolist(), texts, strict=True)
    sums = sum_over_workers(team, torch.cat([loss, matches.counts]))
    by_index = dict(pair for part in team.gather(hypotheses) for pair in part)
    translations = [by_index[i] for i in range(len(by_index))]
    sources, references = corpus.texts(name)
    score, signature = compute_bleu(translations, references)
    examples = tuple(zip(sources[:10], translations[:10], references[:10], strict=True))
    values = {"loss": sums[0] / sums[1], "sacrebleu": score, "Eval_BLEU_Score": PieceMatches.compute_score(sums[2:])}
    return Scores(values, signature, examples)


class PieceMatches:
    """Counts for `Eval_BLEU_Score`, a metric of an older recipe: BLEU from 0 to 1 over the pieces of teacher-forced argmax
    predictions. It is comparable with the curves of that recipe only."""

    ORDERS = 4

    def __init__(self) -> None:
        self.counts = torch.zeros(
            2 * self.ORDERS + 2, dtype=torch.float64
        )  # matches and predictions of each order, then both lengths

    def add(self, predictions: Tensor, target: Tensor, layout: Layout) -> None:
        """Counts the n-grams of packed predictions `[words]` that occur in their target sentences `[words]`."""
        cuts = np.cumsum(layout.lengths)[:-1]
        pairs = zip(np.split(predictions.cpu().numpy(), cuts), np.split(target.cpu().numpy(), cuts), strict=True)
        for prediction, reference in pairs:
            prediction, reference = prediction[:-1], reference[:-1]  # without the end mark
            self.counts[-2] += len(prediction)
            self.counts[-1] += len(reference)
            for n in range(1, self.ORDERS + 1):
                predicted, expected = _count_ngrams(prediction, n), _count_ngrams(reference, n)
                self.counts[2 * n - 2] += sum(min(count, expected[gram]) for gram, count in predicted.items())
                self.counts[2 * n - 1] += predicted.total()

    @classmethod
    def compute_score(cls, counts: list[float]) -> float:
        """Returns the score for counts that were summed over the workers."""
        precisions = [counts[2 * n] / max(1.0, counts[2 * n + 1]) for n in range(cls.ORDERS)]
        if min(precisions) == 0.0:
            return 0.0
        brevity = min(1.0, float(np.exp(1.0 - counts[-1] / max(1.0, counts[-2]))))
        return brevity * float(np.exp(np.mean(np.log(precisions))))


def _count_ngrams(ids: np.ndarray, n: int) -> Counter[tuple[int, ...]]:
    values = ids.tolist()
    return Counter(tuple(values[i : i + n]) for i in range(len(values) - n + 1))
