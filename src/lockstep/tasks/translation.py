"""Translation: sentence pairs, an encoder-decoder, label-smoothed cross-entropy, sacreBLEU."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep import faults
from lockstep.ablation import read_ablation
from lockstep.data.corpus.batches import GlobalBatch, Order, Position, split_by_words
from lockstep.data.corpus.binary_corpus import Corpus, ParallelSet
from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.data.data_settings import BatchSettings
from lockstep.models.make_model import TranslationModel, make_model
from lockstep.models.model_settings import TranslationSettings
from lockstep.models.packed import Layout, choose_cuts
from lockstep.tasks.output_loss import cross_entropy
from lockstep.tasks.piece_matches import PieceMatches
from lockstep.tasks.scoring import ScoringProgress, assign_longest_first
from lockstep.tasks.task import Autocast, Scores, write_model
from lockstep.team import Team
from lockstep.translate.scores import compute_bleu
from lockstep.translate.search import Decodable, search
from lockstep.translate.search_engine import find_limits
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

    @property
    def longest(self) -> tuple[int, int]:
        """Words of the longest source and of the longest target."""
        return self.source_layout.longest, self.target_layout.longest

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
        return self._join_parts().map(Tensor.pin_memory)

    def to(self, device: torch.device) -> "PairBatch":
        if device.type == "cpu":
            return self
        return self._join_parts().map(lambda tensor: tensor.to(device, non_blocking=True))

    def _join_parts(self) -> "PairBatch":
        layouts = self.source_layout.join_parts(), self.target_layout.join_parts()
        return replace(self, source_layout=layouts[0], target_layout=layouts[1])


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

    def evaluate(self, module: nn.Module, team: Team, autocast: Autocast, progress: ScoringProgress) -> Scores:
        return evaluate(module, self.corpus, "validation", self.search, team, autocast, progress)

    def export(self, module: nn.Module, folder: Path) -> None:
        assert isinstance(module, TranslationLoss)
        config = {
            "model": self.model_settings.model_dump(mode="json"),
            "languages": self.corpus.facts["languages"],
            "search": self.search.model_dump(mode="json"),
            "vocabulary_size": self.corpus.vocabulary.size,
            "source_longest": int(self.order.source_lengths.max()),  # pieces, with the end mark
            "cleaning": self.corpus.facts["settings"].get("cleaning", 1),  # how input is normalized
        }
        write_model(folder, module.model, config)
        (folder / "vocabulary.model").write_bytes(self.corpus.vocabulary.model)


class PartScores(TypedDict):
    """What one worker found out about one part of a held-out set."""

    number: int  # of the part
    sums: list[float]  # loss, target words, and the counts of PieceMatches
    indices: list[int]  # of the sentences
    translations: list[str]
    limited: int  # sentences whose translation or reference search.max_words cuts


@torch.no_grad()
def evaluate(
    module: nn.Module,
    corpus: Corpus,
    name: str,
    search: SearchSettings,
    team: Team,
    autocast: Autocast,
    progress: ScoringProgress,
) -> Scores:
    """Returns loss, sacreBLEU and Eval_BLEU_Score on a held-out set. The parts into which it is cut and the order in which
    they are added do not depend on the number of workers, so neither does the result."""
    assert isinstance(module, TranslationLoss)
    pairs = corpus.set(name)
    chosen = progress.begin(len(pairs))
    parts = cut_into_parts(chosen, pairs.source.lengths, search)
    work = [estimate_work(pairs.source.lengths[part], search) for part in parts]
    scorer = PartScorer(module, pairs, corpus.vocabulary, search, team.device, progress)
    with autocast():
        own = [scorer.score(number, parts[number]) for number in assign_longest_first(work, team.size)[team.rank]]
    progress.finish(scorer.done)
    scored = sorted((part for parts in team.gather(own) for part in parts), key=lambda part: part["number"])
    sums = torch.tensor([part["sums"] for part in scored], dtype=torch.float64).sum(0).tolist()
    by_index = {i: text for part in scored for i, text in zip(part["indices"], part["translations"], strict=True)}
    sources, references = ([texts[i] for i in chosen] for texts in corpus.texts(name))
    translations = [by_index[i] for i in chosen.tolist()]
    score, signature = compute_bleu(translations, references)
    examples = tuple(zip(sources[:10], translations[:10], references[:10], strict=True))
    values = {"loss": sums[0] / sums[1], "sacrebleu": score, "Eval_BLEU_Score": PieceMatches.compute_score(sums[2:])}
    limited = sum(part["limited"] for part in scored)
    return Scores(values, signature, examples, limited, tuple(translations), scorer.estimate_growth())


DEVICE_BLOCK_SCORES = 2**26
"""Logits that an evaluation makes at once on a GPU: 256 MB, and three times that with what the loss needs."""


def score_words(model: TranslationModel, vectors: Tensor, target: Tensor) -> tuple[float, Tensor]:
    """Returns the summed loss of target words, and the most likely word at each place. On a device the logits are made in
    blocks, so that a large vocabulary does not fill its memory."""
    block = len(vectors)
    if vectors.device.type != "cpu":
        block = max(1, DEVICE_BLOCK_SCORES // model.output_weight.shape[0])
    losses, predictions = list[Tensor](), list[Tensor]()
    for part, labels in zip(vectors.split(block), target.split(block), strict=True):
        logits = model.logits(part).float()  # [words, vocabulary]
        losses.append(F.cross_entropy(logits, labels, reduction="sum").double())
        predictions.append(logits.argmax(-1))
    return float(sum(losses)), torch.cat(predictions)


@dataclass
class PartScorer:
    """Scores one part of a held-out set after another."""

    module: TranslationLoss
    pairs: ParallelSet
    vocabulary: Vocabulary
    search: SearchSettings
    device: torch.device
    progress: ScoringProgress
    done: int = 0  # sentences scored so far
    search_seconds: float = 0.0
    work: float = 0.0  # of the search, in sentences times positions
    reference_work: float = 0.0  # of a search whose translations are as long as the references

    def score(self, number: int, part: np.ndarray) -> PartScores:
        """Computes the loss of these sentences and translates them."""
        model, matches = self.module.model, PieceMatches()
        batch = make_pair_batch(self.pairs, part, self.vocabulary.bos).to(self.device)
        loss, predictions = score_words(model, self.module.compute_vectors(batch), batch.target_out)
        matches.add(predictions, batch.target_out, batch.target_layout)
        faults.at("evaluate")
        self.progress.update(self.done)

        def on_position(ended: int) -> None:
            self.work += STEP_COST + len(part) - ended
            self.progress.update(self.done + ended)

        begin = time.perf_counter()
        decodable = cast(Decodable[Any, Any], model)
        marks = self.vocabulary.bos, self.vocabulary.eos
        best = search(decodable, batch.source, batch.source_layout.lengths, self.search, *marks, on_position)
        pieces = [hypotheses[0].ids for hypotheses in best]
        self.search_seconds += time.perf_counter() - begin
        lengths = self.pairs.target.lengths[part]
        self.reference_work += STEP_COST * int(lengths.max()) + int(lengths.sum())
        self.done += len(part)
        longest = np.maximum([len(one) for one in pieces], lengths - 1)  # without end marks
        return PartScores(
            number=number,
            sums=[loss, batch.target_words, *matches.counts.tolist()],
            indices=part.tolist(),
            translations=self.vocabulary.decode(pieces),
            limited=int((longest >= (self.search.max_words or np.inf)).sum()),
        )

    def estimate_growth(self) -> float:
        """Returns how many seconds longer these searches would take if translations were as long as the references. An
        untrained model ends its translations early."""
        return self.search_seconds * max(0.0, self.reference_work / max(self.work, 1.0) - 1.0)


LEAST_PARTS, PART_WORDS = 12, 250
"""A held-out set is cut into at least so many parts, so that workers can share it evenly, unless parts had fewer source
words than this."""
STEP_COST = 8
"""What a position costs beside its sentences, as a number of sentences."""


def cut_into_parts(chosen: np.ndarray, source_lengths: np.ndarray, search: SearchSettings) -> list[np.ndarray]:
    """Cuts sentences into parts of similar lengths, the longest sentences first. Each part is translated at once."""
    longest_first = chosen[np.argsort(-source_lengths[chosen].astype(np.int64), kind="stable")]
    words = max(PART_WORDS, int(source_lengths[chosen].sum()) // LEAST_PARTS)
    return split_by_words(longest_first, source_lengths, min(words, search.batch_words))


def estimate_work(source_lengths: np.ndarray, search: SearchSettings) -> float:
    """Returns how long it takes to translate these sentences at once, in sentences times positions."""
    return float(find_limits(source_lengths, search).max()) * (STEP_COST + len(source_lengths))
