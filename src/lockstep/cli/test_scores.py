"""Scores a fine-tuned run and the model it started from, on the test text of both. The report shows what was forgotten."""

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypedDict

from lockstep.cli.common import share_cores, show_progress
from lockstep.config import RunConfig, load
from lockstep.data.corpus.binary_corpus import Corpus
from lockstep.data.corpus.prepare import prepare
from lockstep.errors import LockstepError
from lockstep.files import read_json, sha256, write_json
from lockstep.run.checkpoint import find_model
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import read

WEIGHTS = "model.safetensors"


class TextScore(TypedDict):
    """The scores of one model on one test text."""

    text: Literal["new", "old"]  # of this run, or of the run that it started from
    model: Literal["start", "result"]  # before or after the fine-tuning
    sentences: int
    sacrebleu: float
    chrf: float
    signatures: list[str]


class FineTuningScores(TypedDict):
    """The contents of `tests.json`."""

    start: str  # the place that train.start_from named
    model: str  # folder of the scored model of this run
    sha256: str  # of its weights
    scores: list[TextScore]
    missing: list[str]  # sentences about what could not be scored
    pieces_per_word: dict[str, float]  # of the new and the old training text; many pieces: the vocabulary fits badly
    is_complete: bool  # nothing is left to score
    known: int  # sentences of the old test text that are in the training text of this run


def score_tests(folder: Path, say: Callable[[str], None]) -> FineTuningScores | None:
    """Scores the best checkpoint of a fine-tuned run, and writes `tests.json` after every score. Returns None for other
    runs. What was scored before with the same weights is not scored again."""
    run = RunDirectory(folder)
    start = next((line["start"] for line in read(run.journal).of("run") if "start" in line), None)
    config = load(run.config, [])
    if start is None or config.task_name != "translation":
        return None
    result = find_model(folder).folder
    digest = sha256(result / WEIGHTS)
    before: FineTuningScores | None = read_json(run.tests)
    if before is None or before["sha256"] != digest or not before.get("pieces_per_word"):
        before = None
    elif before["is_complete"]:
        return before
    corpora, missing = _open_corpora(config, Path(start["model"]).parent.parent.parent)
    texts = {name: corpus for name, corpus in corpora.items() if corpus.has("test")}
    missing += [f"The {name} text has no test set." for name in corpora if name not in texts]
    models: dict[Literal["start", "result"], Path] = {"result": result}
    if (Path(start["model"]) / WEIGHTS).is_file():
        models["start"] = Path(start["model"])
    else:
        missing.append(f"The model {start['from']} is gone, so its own scores are not known.")
    scored: FineTuningScores = {
        "start": start["from"],
        "model": str(result),
        "sha256": digest,
        "scores": before["scores"] if before is not None else [],
        "missing": missing,
        "pieces_per_word": {name: _measure_pieces(corpus) for name, corpus in corpora.items()},
        "known": _count_known(corpora["old"], corpora["new"]) if "old" in texts else 0,
        "is_complete": False,
    }
    for text, corpus in texts.items():
        for name, model in models.items():
            if not any((score["text"], score["model"]) == (text, name) for score in scored["scores"]):
                what = "this run" if name == "result" else str(start["from"])
                say(f"Scoring {what} on the {text} test text ({len(corpus.set('test')):,} sentences)")
                scored["scores"].append(_score(corpus, text, model, name, config))
                write_json(run.tests, scored)
    scored["is_complete"] = True
    write_json(run.tests, scored)
    return scored


def _open_corpora(config: RunConfig, old_run: Path) -> tuple[dict[Literal["new", "old"], Corpus], list[str]]:
    """Returns the corpora of this run and of the run it started from, and a sentence if the old one cannot be opened."""
    new = prepare(config.data)
    try:
        if not (old_run / "config.yaml").is_file():
            raise LockstepError("The start model is not in a run folder, which would name its test text.", "")
        old = prepare(load(old_run / "config.yaml", []).data)
    except LockstepError as error:
        return {"new": new}, [f"Forgetting was not measured: {error.message}"]
    return ({"new": new} if old.digest == new.digest else {"new": new, "old": old}), []


def _measure_pieces(corpus: Corpus) -> float:
    """Returns the pieces per word of the training text, both sides together."""
    counts = corpus.facts["sets"]["train"]
    pieces = counts["source_words"] + counts["target_words"] - 2 * counts["lines"]  # without end-of-sentence tokens
    return pieces / max(1, counts["source_plain_words"] + counts["target_plain_words"])


def _count_known(old: Corpus, new: Corpus) -> int:
    """Counts the source sentences of the old test text that the run was trained on. Both have the same vocabulary."""
    trained = set(_list_sentences(new, "train"))
    return sum(sentence in trained for sentence in _list_sentences(old, "test"))


def _list_sentences(corpus: Corpus, name: str) -> Iterator[bytes]:
    """Yields the ids of each source sentence as bytes."""
    ids, offsets = corpus.set(name).source.ids, corpus.set(name).source.offsets.tolist()
    return (ids[begin:end].tobytes() for begin, end in pairwise(offsets))


def _score(
    corpus: Corpus, text: Literal["new", "old"], folder: Path, model: Literal["start", "result"], config: RunConfig
) -> TextScore:
    """Scores as `lockstep evaluate` does, with the search settings of the run, so that both models are decoded alike."""
    share_cores()
    import torch

    from lockstep.devices import pick_device
    from lockstep.tasks.scoring import ScoringProgress
    from lockstep.tasks.translation import TranslationLoss, evaluate
    from lockstep.team import Team
    from lockstep.translate.scores import compute_chrf
    from lockstep.translate.torch_engine import load_torch_translator

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    alone = Team(0, 1, pick_device(config.train.device, 0))
    translator = load_torch_translator([folder], dict(config.search.model_dump(mode="json")), str(alone.device))
    module = TranslationLoss(translator.model, label_smoothing=0.0).eval()
    with torch.inference_mode(), show_progress("scoring") as show:
        progress = ScoringProgress(alone, show=show)
        scores = evaluate(module, corpus, "test", translator.search, alone, nullcontext, progress)
    _, references = corpus.texts("test")
    chrf, signature = compute_chrf(list(scores.translations), list(references))
    return {
        "text": text,
        "model": model,
        "sentences": len(references),
        "sacrebleu": scores.values["sacrebleu"],
        "chrf": chrf,
        "signatures": [scores.signature, signature],
    }
