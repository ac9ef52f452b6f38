"""`lockstep evaluate`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from lockstep.cli.evaluate_output import SystemFacts, SystemOutput
    from lockstep.cli.evaluate_set import ScoredRun
    from lockstep.translate.score_texts import ParallelText, ScoringSettings
    from lockstep.translate.scores import TextMetric
    from lockstep.translate.translator import Translator

Which = Literal["best", "last"]


@dataclass(frozen=True)
class _Request:
    """What the user asked for, beside the models and the text."""

    checkpoint: Which
    average: int
    search: dict[str, object]  # settings to replace
    settings: "ScoringSettings"
    output: Path | None
    html: Path | None


@dataclass(frozen=True)
class _Translated:
    """A text, its translations by one or two models, and the metrics by which they are scored."""

    text: "ParallelText"
    systems: list["SystemOutput"]
    metrics: list["TextMetric"]


def evaluate(
    model: Annotated[str, typer.Argument(help="A run folder or address; with --source also a model or export folder.")],
    other: Annotated[str | None, typer.Argument(metavar="[MODEL2]", help="Another one, to compare with.")] = None,
    on: Annotated[
        str | None, typer.Option("--set", help="The set of the run to score: validation or test; default: test.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="A text to score instead, one sentence per line.")] = None,
    reference: Annotated[Path | None, typer.Option(help="The right translation of each line of --source.")] = None,
    checkpoint: Annotated[Which, typer.Option(help="Which checkpoint: with the best score, or the newest.")] = "best",
    average: Annotated[int, typer.Option(min=1, help="Average the weights of the N best or N last checkpoints.")] = 1,
    beam: Annotated[int | None, typer.Option(min=1, help="Beam size; default: search.beam of the run.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(min=0.0, help="Length penalty; default: search.length_penalty of the run.")
    ] = None,
    text_format: Annotated[
        Literal["plain", "tokenized-lowercase"],
        typer.Option("--format", help="tokenized-lowercase adds BLEU as the Multi30k papers compute it."),
    ] = "plain",
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples for intervals and tests; 0: none.")] = 1000,
    worst: Annotated[int, typer.Option(min=0, help="How many of the worst sentences to show.")] = 5,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the translations to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with charts to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Score a trained model: sacreBLEU and chrF with intervals, loss, scores by length and the worst sentences.

    The text is a held-out set of the run, or two files. With a second model, both are scored on the same text, and a test
    tells whether they differ by more than chance. A model of images has loss and accuracy.

    `lockstep evaluate runs/demo`

    `lockstep evaluate runs/a runs/b --source news.en --reference news.de --html news.html`
    """
    from lockstep.cli.common import share_cores
    from lockstep.translate.score_texts import ScoringSettings

    share_cores()
    places = [model] if other is None else [model, other]
    overrides: dict[str, object] = {"beam": beam, "length_penalty": length_penalty}
    search = {name: value for name, value in overrides.items() if value is not None}
    settings = ScoringSettings(text_format, bootstrap, worst)
    request = _Request(checkpoint, average, search, settings, output, html)
    _check_request(places, on, source, reference, request)
    if source is not None and reference is not None:
        _report(_translate_files(places, source, reference, request), request, as_json)
    else:
        _evaluate_sets(places, on or "test", request, as_json)


def evaluate_run(run: str | Path, on: str, checkpoint: Which, search: dict[str, object]) -> dict[str, object]:
    """Scores a held-out set of a run, text or images, as training does: without intervals and without single sentences.
    The result also says what was measured: checkpoint, beam size."""
    from lockstep.cli.common import share_cores

    share_cores()
    from lockstep.cli.evaluate_set import open_corpus, open_run, score_images, score_set

    opened = open_run(run, checkpoint)
    if opened.config.task_name != "translation":
        return score_images(opened, on, checkpoint)
    return dict(score_set(opened, open_corpus(opened, on), on, search).facts)


def _check_request(
    places: Sequence[str], on: str | None, source: Path | None, reference: Path | None, request: _Request
) -> None:
    from lockstep.errors import LockstepError

    if (source is None) != (reference is None):
        given, other = ("--source", "--reference") if reference is None else ("--reference", "--source")
        raise LockstepError(f"There is {given} without {other}.", "Give both files, or --set.", code=2)
    if source is not None and on is not None:
        raise LockstepError("There is a --set and a --source.", "Give one of them.", code=2)
    if request.output is not None and len(places) > 1:
        raise LockstepError(
            "--output is for one model.", "Evaluate each model alone to write its translations.", code=2
        )
    for path in filter(None, (request.output, request.html)):
        if not path.absolute().parent.is_dir():
            raise LockstepError(f"There is no folder {path.parent}.", "Make it, or choose another file.", code=2)
        if path.exists() and any(one.exists() and path.samefile(one) for one in (source, reference) if one):
            raise LockstepError(f"{path} is a text to read as well.", "Choose another file to write to.", code=2)


def _translate_files(places: Sequence[str], source: Path, reference: Path, request: _Request) -> _Translated:
    """Translates a file by each model, as `lockstep translate` does. torch is imported only for models that need it."""
    from lockstep.translate.load_model import load_translator
    from lockstep.translate.score_files import read_pairs
    from lockstep.translate.score_texts import ParallelText, prepare_scoring

    sources, references = read_pairs(source, reference)
    translators = [
        load_translator(place, checkpoint=request.checkpoint, average=request.average, search=request.search)
        for place in places
    ]
    text = ParallelText(f"{source}, {reference}", sources, references, translators[0].languages)
    metrics = prepare_scoring(text, request.settings)
    systems = [_translate_text(place, one, text) for place, one in zip(places, translators, strict=True)]
    return _Translated(text, systems, metrics)


def _translate_text(place: str, translator: "Translator", text: "ParallelText") -> "SystemOutput":
    from lockstep.cli.common import show_progress
    from lockstep.cli.evaluate_output import SystemOutput

    total_bytes = sum(len(source.encode()) for source in text.sources)
    done_bytes, begin = 0, time.perf_counter()
    with show_progress("translating") as show:

        def report(size: int) -> None:
            nonlocal done_bytes
            done_bytes += size
            show(len(text.sources) * done_bytes // max(1, total_bytes), len(text.sources))

        lines = translator.translate_each(text.sources, report)
    seconds = time.perf_counter() - begin
    facts: SystemFacts = {
        "model": place,
        "beam": translator.search.beam,
        "length_penalty": translator.search.length_penalty,
        "limit": translator.limit,
        "split": sum(line.parts > 1 for line in lines),
        "seconds": seconds,
        "words_per_second": sum(line.pieces for line in lines) / seconds,
    }
    loss = _compute_loss(place, translator, text)
    if loss is not None:
        facts["loss"] = loss
    return SystemOutput(place, [line.text for line in lines], facts)


def _compute_loss(place: str, translator: "Translator", text: "ParallelText") -> float | None:
    """Returns the loss per target word; None for an export, which cannot compute it."""
    from lockstep.cli.common import show_progress
    from lockstep.export_facts import is_export

    if is_export(Path(place)):
        return None
    from lockstep.cli.evaluate_set import compute_loss
    from lockstep.translate.torch_engine import TorchTranslator

    assert isinstance(translator, TorchTranslator)
    with show_progress("computing the loss") as show:
        return compute_loss(translator, text.sources, text.references, show)


def _evaluate_sets(places: Sequence[str], on: str, request: _Request, as_json: bool) -> None:
    """Scores a held-out set of one or two runs."""
    from lockstep.cli.common import print_json, print_text
    from lockstep.cli.evaluate_output import format_images
    from lockstep.cli.evaluate_set import open_run, score_images

    runs = [open_run(place, request.checkpoint, request.average) for place in places]
    images = [run for run in runs if run.config.task_name != "translation"]
    if not images:
        _report(_translate_sets(runs, on, request), request, as_json)
        return
    _refuse_text_options(images[0].name, images[0].config.task_name, len(runs), request)
    result = score_images(images[0], on, request.checkpoint)
    if as_json:
        print_json(result)
    else:
        print_text(*format_images(on, places[0], result))


def _refuse_text_options(run: str, task: str, models: int, request: _Request) -> None:
    """Raises if something was asked for that only translation has."""
    from lockstep.errors import LockstepError

    given = {
        "MODEL2": models > 1,
        "--beam": "beam" in request.search,
        "--length-penalty": "length_penalty" in request.search,
        "--average": request.average > 1,
        "--format": request.settings.text_format != "plain",
        "--output": request.output is not None,
        "--html": request.html is not None,
    }
    names = [name for name, is_given in given.items() if is_given]
    if names:
        remedy = f"Leave it out: {run} is a run of the task {task}."
        raise LockstepError(f"{' and '.join(names)}: only for translation.", remedy, code=2)


def _translate_sets(runs: Sequence["ScoredRun"], on: str, request: _Request) -> _Translated:
    """Translates a held-out set by the models of one or two runs, which must have the same text."""
    from lockstep.cli.evaluate_set import open_corpus, score_set
    from lockstep.errors import LockstepError
    from lockstep.translate.score_texts import ParallelText, prepare_scoring

    corpora = [open_corpus(run, on) for run in runs]
    if any(corpus.texts(on) != corpora[0].texts(on) for corpus in corpora[1:]):
        remedy = "Score both on the same files: --source FILE --reference FILE."
        raise LockstepError(f"{runs[0].name} and {runs[1].name} have another {on} text.", remedy, code=2)
    source, target = corpora[0].facts["languages"]
    name = f"{on} text of {runs[0].name}" if len(runs) == 1 else f"{on} text of both runs"
    text = ParallelText(name, *corpora[0].texts(on), (source, target))
    metrics = prepare_scoring(text, request.settings)
    systems = [score_set(run, corpus, on, request.search) for run, corpus in zip(runs, corpora, strict=True)]
    return _Translated(text, systems, metrics)


def _report(translated: _Translated, request: _Request, as_json: bool) -> None:
    """Scores the translations, prints the scores and writes the files that were asked for."""
    from lockstep.cli.common import print_json, print_text
    from lockstep.cli.evaluate_output import format_lines, make_json, make_view
    from lockstep.explain.pages.evaluation_page import render_evaluation
    from lockstep.translate.score_texts import evaluate_texts
    from lockstep.translate.translator import LINE_BREAKS

    text, systems = translated.text, translated.systems
    if request.output is not None:
        lines = (line.translate(LINE_BREAKS) for line in systems[0].translations)
        _write(request.output, "".join(f"{line}\n" for line in lines), "--output")
    scored = evaluate_texts(text, [one.translations for one in systems], translated.metrics, request.settings)
    if request.html is not None:
        _write(request.html, render_evaluation(make_view(text, systems, scored)), "--html")
    if as_json:
        print_json(make_json(text, systems, scored))
    else:
        print_text(*format_lines(text, systems, scored))


def _write(path: Path, content: str, option: str) -> None:
    from lockstep.files import disk_error

    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise disk_error(path, error, f"choose another {option}") from None
