"""`lockstep export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lockstep.cli.common import print_text

if TYPE_CHECKING:
    from lockstep.translate.export_folder import ExportFacts
    from lockstep.translate.export_model import ExportRequest, HeldOutText

COMPARED_SENTENCES = 100

Format = Literal["ctranslate2", "argos", "onnx"]
Quantization = Literal["none", "int8", "int8_bfloat16", "float16", "bfloat16"]


def export(
    run: Annotated[str, typer.Argument(help="A run folder or address, a checkpoint folder or a model folder.")],
    to: Annotated[Path, typer.Option("--to", help="The folder to write; with --format argos a .argosmodel file.")],
    kind: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="ctranslate2: small and fast, without torch. argos: a package for Argos Translate and LibreTranslate. "
            "onnx: image classifiers. Default: ctranslate2 for text, onnx for images.",
        ),
    ] = None,
    quantize: Annotated[
        Quantization,
        typer.Option(help="Type of the weights. int8 is four times as small as none, and faster on most CPUs."),
    ] = "none",
    checkpoint: Annotated[
        Literal["best", "last"], typer.Option(help="Which checkpoint of the run: with the best score, or the newest.")
    ] = "best",
    average: Annotated[int, typer.Option(min=1, help="Average the weights of the N best or N last checkpoints.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts of the export as JSON.")] = False,
) -> None:
    """Export a trained model for use without torch.

    A folder or package is written with the model, its vocabulary and a model card. Some held-out sentences are translated
    by the trainer and by the export, and their agreement is printed and recorded.

    `lockstep export runs/demo --to models/demo --quantize int8`
    """
    from lockstep.cli.common import print_json, share_cores

    share_cores()
    if _is_classifier(run):
        _export_images(run, to, kind, quantize, checkpoint, average, as_json)
        return
    if kind == "onnx":
        from lockstep.errors import LockstepError

        raise LockstepError(
            "Translation models are exported for CTranslate2, not as ONNX.", "Leave out --format onnx.", code=2
        )
    from lockstep.translate.export_model import write_export, write_package

    request = _make_request(run, quantize, checkpoint, average)
    if kind == "argos":
        to = to if to.suffix == ".argosmodel" else to / "model.argosmodel"
        facts = write_package(request, to)
    else:
        facts = write_export(request, to)
    if as_json:
        print_json(facts.model_dump(mode="json") | {"to": str(to)})
    else:
        _print_facts(facts, to)


def _is_classifier(run: str) -> bool:
    """Is this a model that classifies images? A wrong path is reported later."""
    from lockstep.errors import LockstepError
    from lockstep.files import read_json
    from lockstep.remote.fetch_run import fetch_model
    from lockstep.run.checkpoint import find_model

    try:
        config = read_json(find_model(fetch_model(run, "last"), "last").folder / "config.json")
    except LockstepError:
        return False
    return isinstance(config, dict) and "classes" in config


def _export_images(
    run: str,
    to: Path,
    kind: str | None,
    quantize: str,
    checkpoint: Literal["best", "last"],
    average: int,
    as_json: bool,
) -> None:
    from lockstep.cli.export_images import export_images
    from lockstep.errors import LockstepError

    if kind not in (None, "onnx"):
        raise LockstepError(f"{run} classifies images, which are exported as ONNX.", "Use --format onnx.", code=2)
    if quantize != "none" or average > 1:
        raise LockstepError("--quantize and --average are for translation models.", "Leave them out.", code=2)
    export_images(run, to, checkpoint, as_json)


def _make_request(
    run: str, quantize: Quantization, checkpoint: Literal["best", "last"], average: int
) -> "ExportRequest":
    from lockstep.notices import warn
    from lockstep.remote.fetch_run import fetch_model
    from lockstep.translate.average import find_models
    from lockstep.translate.export_model import ExportRequest

    place = fetch_model(run, checkpoint, average)
    folders, notice = find_models(place, checkpoint, average)
    if notice is not None:
        warn(notice)
    held_out, licence = _read_text(folders[-1].resolve().parents[2])
    return ExportRequest(folders, quantize, held_out, licence)


def _read_text(run: Path) -> "tuple[HeldOutText | None, str | None]":
    """Returns held-out sentences and the licence of the training text, as far as the text of the run is still there."""
    from lockstep.config import load
    from lockstep.data.catalog.entries import SOURCE
    from lockstep.data.corpus.prepare import prepare
    from lockstep.errors import LockstepError
    from lockstep.files import read_json
    from lockstep.notices import warn
    from lockstep.translate.export_model import HeldOutText

    if not (run / "config.yaml").is_file() or not (run / "choices.json").is_file():
        return None, None
    data = load(run / "config.yaml", []).data
    source = (
        read_json(Path(data.folder) / SOURCE) if data.folder is not None and "://" not in str(data.folder) else None
    )
    licence = source.get("licence") if isinstance(source, dict) else None
    try:
        corpus = prepare(data)
    except LockstepError as error:
        warn(f"The export is not compared with the trainer: {error.message}")
        return None, licence
    name = next((name for name in ("validation", "test") if corpus.has(name)), None)
    if name is None:
        return None, licence
    sources, references = (texts[:COMPARED_SENTENCES] for texts in corpus.texts(name))
    return HeldOutText(f"{len(sources)} sentences of the {name} text", sources, references), licence


def _print_facts(facts: "ExportFacts", to: Path) -> None:
    import shlex

    from lockstep.translate.model_card import describe_parity

    size = sum(path.stat().st_size for path in to.rglob("*")) if to.is_dir() else to.stat().st_size
    steps = ", ".join(f"{step:,}" for step in facts.steps) or "unknown"
    print_text(f"{to}: {' to '.join(facts.languages)}, {facts.parameters:,} parameters, {size / 1e6:,.1f} MB")
    print_text(f"  step{'s' * (len(facts.steps) > 1)} {steps} of {facts.run}, quantization: {facts.quantization}")
    print_text(f"  {describe_parity(facts.parity)}")
    if to.is_dir():
        place = shlex.quote(str(to))
        print_text(f'Next: lockstep translate {place} "...", or lockstep serve {place}')
    else:
        print_text(f"Next: argospm install {shlex.quote(str(to))}")
