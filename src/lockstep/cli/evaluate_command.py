"""`lockstep evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from lockstep.config import RunConfig


def evaluate(
    run: Annotated[str, typer.Argument(help="A run folder or address.")],
    on: Annotated[str, typer.Option("--set", help="The set to score: validation or test.")] = "test",
    checkpoint: Annotated[
        Literal["best", "last"], typer.Option(help="Which checkpoint: with the best score, or the newest.")
    ] = "best",
    beam: Annotated[int | None, typer.Option(min=1, help="Beam size; default: search.beam of the run.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(min=0.0, help="Length penalty; default: search.length_penalty of the run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Score a trained model: loss and sacreBLEU on held-out text, or loss and accuracy on images."""
    from lockstep.cli.common import print_json

    result = evaluate_run(run, on, checkpoint, {"beam": beam, "length_penalty": length_penalty})
    if as_json:
        print_json(result)
        return
    if "accuracy" in result:
        print(f"{on} of {run}, {result['model']}, {result['images']:,} images, {result['seconds']:.1f} s")
        print(f"  accuracy         {result['accuracy']:.2f} %")
        print(f"  loss             {result['loss']:.4f} per image, without label smoothing")
        if result["chosen_on_this_set"]:
            better = "--set test" if result["held_out"] else "--checkpoint last, or train with data.hold_out"
            print("  The checkpoint was chosen on these images, so the score is too good.")
            print(f"  To compare with others: {better}.")
        return
    print(f"{on} of {run}, {result['sentences']:,} sentences, {result['seconds']:.1f} s")
    print(f"  model            {result['model']}")
    print(f"  sacreBLEU        {result['sacrebleu']:.2f}")
    print(f"  signature        {result['signature']}")
    print(f"  beam {result['beam']}, length penalty {result['length_penalty']}")
    print(f"  loss             {result['loss']:.4f} per target word, without label smoothing")
    if result["trained_in"] != result["precision"]:
        print(f"  computed in fp32; evaluations in training are in {result['trained_in']} and differ a little")
    if result["limited"]:
        print(f"  search.max_words cuts the translation or the reference of {result['limited']:,} sentences")
    print(f"  Eval_BLEU_Score  {result['Eval_BLEU_Score']:.4f} (teacher-forced, on pieces, 0-1: not BLEU)")
    if result["too_long"]:
        print(
            f"  {result['too_long']:,} sentences have more than {result['limit']:,} pieces, more than any in training."
        )
        print("  They are scored as a whole; `lockstep translate` splits such lines.")


def evaluate_run(
    run: str | Path, on: str, checkpoint: Literal["best", "last"], search: dict[str, float | None]
) -> dict[str, object]:
    """Scores the model of a run. The result also says what was measured: set, checkpoint, beam size."""
    import os
    import time
    from contextlib import nullcontext

    from lockstep.cli.common import find_model_folder, share_cores, show_progress

    share_cores()
    import torch

    from lockstep.config import load
    from lockstep.data.corpus.prepare import prepare
    from lockstep.errors import LockstepError
    from lockstep.files import read_json
    from lockstep.remote.fetch_run import fetch_model
    from lockstep.tasks.scoring import ScoringProgress
    from lockstep.tasks.translation import TranslationLoss
    from lockstep.tasks.translation import evaluate as score
    from lockstep.team import Team, pick_device
    from lockstep.translate.translator import Translator

    place = fetch_model(run, checkpoint)
    folder = find_model_folder(place, checkpoint)
    if not (place / "config.yaml").exists():
        remedy = "Name the run folder: its config.yaml says which text to score."
        raise LockstepError(f"{run} is a model without its run.", remedy, code=2)
    config = load(place / "config.yaml", [])
    if config.task_name != "translation":
        if any(value is not None for value in search.values()):
            remedy = f"Leave them out: {run} is a run of the task {config.task_name}."
            raise LockstepError("--beam and --length-penalty are only for translation.", remedy, code=2)
        return _evaluate_images(config, place, folder, on, checkpoint)
    corpus = prepare(config.data)
    trained_on = read_json(place / "data.json")
    if trained_on is not None and trained_on["digest"] != corpus.digest:
        raise LockstepError(
            f"The corpus {corpus.folder} is not the one on which {run} was trained.",
            "Restore the text of the run, or prepare it again.",
        )
    if on == "train" or not corpus.has(on):
        held_out = [name for name in corpus.facts["sets"] if name != "train"]
        reason = "The training text is not scored." if on == "train" else f"The corpus has no {on} text."
        raise LockstepError(reason, f"Use --set with one of: {', '.join(held_out)}.", code=2)
    device = pick_device(config.train.device, 0)
    overrides: dict[str, object] = {name: value for name, value in search.items() if value is not None}
    translator = Translator.load(folder, overrides, str(device))
    module = TranslationLoss(translator.model, config.train.label_smoothing).eval()
    torch.set_num_threads(len(os.sched_getaffinity(0)))  # an earlier training in this process may have set one thread
    begin = time.perf_counter()
    with torch.inference_mode(), show_progress("evaluating") as show:
        alone = Team(0, 1, device)
        scores = score(module, corpus, on, translator.search, alone, nullcontext, ScoringProgress(alone, show=show))
    trained_in = (read_json(place / "choices.json") or {}).get("precision", "fp32")
    return {
        **scores.values,
        "signature": scores.signature,
        "sentences": len(corpus.set(on)),
        "limited": scores.limited,
        "model": str(folder),
        "beam": translator.search.beam,
        "length_penalty": translator.search.length_penalty,
        "precision": "fp32",
        "trained_in": trained_in,
        "limit": translator.limit,
        "too_long": int((corpus.set(on).source.lengths > translator.limit + 1).sum()),
        "seconds": time.perf_counter() - begin,
        "examples": [list(example) for example in scores.examples],
    }


def _evaluate_images(
    config: "RunConfig", place: Path, folder: Path, on: str, checkpoint: Literal["best", "last"]
) -> dict[str, object]:
    import os
    import time
    from contextlib import nullcontext

    import torch

    from lockstep.data.corpus.remote_copies import fetch_images
    from lockstep.data.images.image_set import ImageCorpus
    from lockstep.errors import LockstepError
    from lockstep.files import read_json
    from lockstep.run.checkpoint import read_checkpoint
    from lockstep.tasks.classification import evaluate as score
    from lockstep.tasks.classification import load as load_model
    from lockstep.tasks.scoring import ScoringProgress
    from lockstep.team import Team, pick_device

    if config.task_name != "classification" or config.data.images is None:
        remedy = "It scores translation and classification; your own task has its scores in the journal and the report."
        raise LockstepError(f"`lockstep evaluate` cannot score the task {config.task_name}.", remedy, code=2)
    corpus = ImageCorpus.open(fetch_images(config.data.images), config.data.hold_out)
    trained_on = read_json(place / "data.json")
    if trained_on is not None and trained_on["digest"] != corpus.facts["digest"]:
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
    alone = Team(0, 1, device)
    scores = score(load_model(folder, device)[0], corpus.sets[on], alone, nullcontext, ScoringProgress(alone))
    facts = {"images": len(corpus.sets[on]), "model": str(folder), "seconds": time.perf_counter() - begin}
    facts |= {"held_out": config.data.hold_out}
    saved = read_checkpoint(folder.parent)
    is_best = checkpoint == "best" and saved is not None and saved.progress().best_step == saved.step
    facts |= {"chosen_on_this_set": is_best and (on == "validation" or not config.data.hold_out)}
    return {**scores.values, **facts}
