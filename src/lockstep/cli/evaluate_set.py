"""Scores the model of a run with torch: on a held-out set of its text, on its images, or by its loss on any text."""

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from lockstep.cli.common import show_progress
from lockstep.cli.evaluate_output import SystemFacts, SystemOutput
from lockstep.config import RunConfig, load
from lockstep.data.corpus.binary_corpus import Corpus, LanguageSide, ParallelSet
from lockstep.data.corpus.prepare import prepare
from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.devices import pick_device
from lockstep.errors import LockstepError
from lockstep.export_facts import is_export
from lockstep.files import read_json
from lockstep.notices import warn
from lockstep.remote.fetch_run import fetch_model
from lockstep.tasks import classification
from lockstep.tasks.scoring import ScoringProgress
from lockstep.tasks.translation import TranslationLoss, cut_into_parts, evaluate, make_pair_batch
from lockstep.team import Team
from lockstep.translate.average import find_models
from lockstep.translate.torch_engine import TorchTranslator, load_torch_translator


@dataclass(frozen=True)
class ScoredRun:
    """A run whose model is scored. Several model folders are averaged."""

    name: str  # as the user named it
    place: Path
    models: list[Path]
    config: RunConfig


def open_run(run: str | Path, checkpoint: Literal["best", "last"], average: int = 1) -> ScoredRun:
    """Finds the model and the config of a run. A sentence on stderr says so if another checkpoint had to be taken."""
    place = fetch_model(run, checkpoint, average)
    models, notice = ([place], None) if is_export(place) else find_models(place, checkpoint, average)
    if not (place / "config.yaml").exists():
        remedy = "Name the run folder: its config.yaml says which text to score. Or give --source and --reference."
        raise LockstepError(f"{run} is a model without its run.", remedy, code=2)
    if notice is not None:
        warn(notice)
    return ScoredRun(str(run), place, models, load(place / "config.yaml", []))


def open_corpus(run: ScoredRun, on: str) -> Corpus:
    """Returns the corpus of a run of the task translation, which has a held-out set `on`."""
    corpus = prepare(run.config.data)
    trained_on = read_json(run.place / "data.json")
    if trained_on is not None and trained_on.get("digest") != corpus.digest:
        raise LockstepError(
            f"The corpus {corpus.folder} is not the one on which {run.name} was trained.",
            "Restore the text of the run, or prepare it again.",
        )
    if on == "train" or not corpus.has(on):
        held_out = [name for name in corpus.facts["sets"] if name != "train"]
        reason = "The training text is not scored." if on == "train" else f"The corpus has no {on} text."
        raise LockstepError(reason, f"Use --set with one of: {', '.join(held_out)}.", code=2)
    return corpus


def score_set(run: ScoredRun, corpus: Corpus, on: str, search: dict[str, object]) -> SystemOutput:
    """Scores a held-out set as training does. The facts also say what was measured: checkpoint, beam size."""
    device = pick_device(run.config.train.device, 0)
    translator = load_torch_translator(run.models, search, str(device))
    module = TranslationLoss(translator.model, run.config.train.label_smoothing).eval()
    torch.set_num_threads(len(os.sched_getaffinity(0)))  # an earlier training in this process may have set one thread
    begin = time.perf_counter()
    with torch.inference_mode(), show_progress("evaluating") as show:
        alone = Team(0, 1, device)
        scores = evaluate(module, corpus, on, translator.search, alone, nullcontext, ScoringProgress(alone, show=show))
    seconds = time.perf_counter() - begin
    translations = list(scores.translations)
    words = sum(len(ids) + 1 for ids in corpus.vocabulary.encode(translations))  # with end marks
    facts: SystemFacts = {
        "loss": scores.values["loss"],
        "sacrebleu": scores.values["sacrebleu"],
        "Eval_BLEU_Score": scores.values["Eval_BLEU_Score"],
        "signature": scores.signature,
        "sentences": len(corpus.set(on)),
        "limited": scores.limited,
        "model": ", ".join(map(str, run.models)),
        "beam": translator.search.beam,
        "length_penalty": translator.search.length_penalty,
        "precision": "fp32",
        "trained_in": (read_json(run.place / "choices.json") or {}).get("precision", "fp32"),
        "limit": translator.limit,
        "too_long": int((corpus.set(on).source.lengths > translator.limit + 1).sum()),
        "seconds": seconds,
        "words_per_second": words / seconds,
        "examples": [list(example) for example in scores.examples],
    }
    return SystemOutput(run.name, translations, facts)


@torch.inference_mode()
def compute_loss(
    translator: TorchTranslator, sources: list[str], references: list[str], show: Callable[[int, int], None]
) -> float:
    """Returns the loss per target word, end marks included, without label smoothing, as an evaluation in training has it.
    `show` is called with the number of sentences that are done and of all."""
    model, vocabulary = translator.model, translator.vocabulary
    pairs = ParallelSet("files", _encode(vocabulary, sources), _encode(vocabulary, references))
    loss, words, done = 0.0, 0, 0
    for part in cut_into_parts(np.arange(len(pairs)), pairs.source.lengths, translator.search):
        batch = make_pair_batch(pairs, part, vocabulary.bos).to(model.output_weight.device)
        vectors = model(batch.source, batch.source_layout, batch.target_in, batch.target_layout)
        logits = model.logits(vectors).float()  # [target words, vocabulary]
        loss += F.cross_entropy(logits, batch.target_out, reduction="sum").double().item()
        words += batch.target_words
        done += len(part)
        show(done, len(pairs))
    return loss / words


def _encode(vocabulary: Vocabulary, texts: list[str]) -> LanguageSide:
    sentences = [[*ids, vocabulary.eos] for ids in vocabulary.encode(texts)]
    offsets = np.zeros(len(sentences) + 1, np.int64)
    np.cumsum([len(ids) for ids in sentences], out=offsets[1:])
    return LanguageSide(np.array([piece for ids in sentences for piece in ids], np.int64), offsets)


def score_images(run: ScoredRun, on: str, checkpoint: Literal["best", "last"]) -> dict[str, object]:
    """Scores the model of a run of the task classification on its validation or test images."""
    from lockstep.data.corpus.remote_copies import fetch_images
    from lockstep.data.images.image_set import ImageCorpus
    from lockstep.run.checkpoint import read_checkpoint

    config, (folder, *_) = run.config, run.models
    if config.task_name != "classification" or config.data.images is None:
        remedy = "It scores translation and classification; your own task has its scores in the journal and the report."
        raise LockstepError(f"`lockstep evaluate` cannot score the task {config.task_name}.", remedy, code=2)
    corpus = ImageCorpus.open(fetch_images(config.data.images), config.data.hold_out)
    trained_on = read_json(run.place / "data.json")
    if trained_on is not None and trained_on.get("digest") != corpus.facts["digest"]:
        raise LockstepError(f"The images in {corpus.folder} are not those of the run.", "Restore them, or train again.")
    if on not in ("validation", "test"):
        raise LockstepError(f"There are no {on} images.", "Use --set with one of: validation, test.", code=2)
    if on == "validation" and not config.data.hold_out:
        remedy = "Use --set test. With data.hold_out the next run has validation images."
        raise LockstepError(
            "There are no validation images: this run was trained without data.hold_out.", remedy, code=2
        )
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    device, begin = pick_device(config.train.device, 0), time.perf_counter()
    alone, model = Team(0, 1, device), classification.load(folder, device)[0]
    scores = classification.evaluate(model, corpus.sets[on], alone, nullcontext, ScoringProgress(alone))
    facts = {"images": len(corpus.sets[on]), "model": str(folder), "seconds": time.perf_counter() - begin}
    saved = read_checkpoint(folder.parent)
    is_best = checkpoint == "best" and saved is not None and saved.progress().best_step == saved.step
    is_chosen = is_best and (on == "validation" or not config.data.hold_out)
    return {**scores.values, **facts, "held_out": config.data.hold_out, "chosen_on_this_set": is_chosen}
