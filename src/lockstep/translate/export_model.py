"""Exports the translation model of a run: as a CTranslate2 folder, or as a package for Argos Translate."""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from lockstep import __version__
from lockstep.data.text.languages import name_language, split_code
from lockstep.errors import LockstepError
from lockstep.export_facts import is_export
from lockstep.files import damaged, disk_error, read_json, sync
from lockstep.models.transformer import Transformer
from lockstep.run.checkpoint import Checkpoint, read_checkpoint
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import read
from lockstep.translate.ctranslate2_engine import load_export
from lockstep.translate.export_ctranslate2 import count_positions, make_spec, write_model
from lockstep.translate.export_folder import CARD, VOCABULARY, ExportFacts, Parity, write_facts
from lockstep.translate.model_card import write_card
from lockstep.translate.scores import compute_bleu
from lockstep.translate.torch_engine import TorchTranslator, load_torch_translator


@dataclass(frozen=True)
class HeldOutText:
    """Sentences on which trainer and export are compared, and what they are called."""

    name: str
    sources: list[str]
    references: list[str]


@dataclass(frozen=True)
class ExportRequest:
    """What to export. The model is the mean of those in `folders`, which are of one run."""

    folders: Sequence[Path]
    quantization: str = "none"
    held_out: HeldOutText | None = None
    licence: str | None = None  # of the training text


def write_export(request: ExportRequest, to: Path) -> ExportFacts:
    """Writes a CTranslate2 folder, which is complete or does not exist. An earlier export in its place is replaced."""
    with replace_folder(to) as folder:
        return _write_folder(request, folder)


def write_package(request: ExportRequest, to: Path) -> ExportFacts:
    """Writes a file that Argos Translate and LibreTranslate load as a package."""
    partial = to.with_name(f".{to.name}.partial")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as name:
            facts = _write_folder(request, Path(name))
            _pack(Path(name), facts.languages, partial)
        sync(partial)
        partial.replace(to)
    except OSError as error:
        raise disk_error(to, error, "choose another --to") from None
    finally:
        partial.unlink(missing_ok=True)
    return facts


def _pack(folder: Path, languages: tuple[str, str], to: Path) -> None:
    source, target = (split_code(code)[0] for code in languages)
    name = f"translate-{source}_{target}-1_0"
    metadata = {
        "package_version": "1.0",
        "argos_version": "1.9",
        "from_code": source,
        "from_name": name_language(source),
        "to_code": target,
        "to_name": name_language(target),
        "links": [],
    }
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/metadata.json", json.dumps(metadata, indent=1, ensure_ascii=False))
        for path in sorted(folder.iterdir()):
            inside = path.name if path.name in (VOCABULARY, CARD) else f"model/{path.name}"
            archive.write(path, f"{name}/{inside}")


@contextmanager
def replace_folder(to: Path) -> Iterator[Path]:
    """Yields an empty folder to fill, which is renamed to `to` at the end. `to` may be missing, empty or an export."""
    if to.exists() and not to.is_dir():
        raise LockstepError(f"{to} is a file.", "Choose another --to.", code=2)
    if to.is_dir() and any(to.iterdir()) and not is_export(to):
        raise LockstepError(f"{to} has files that are not an export.", "Choose another --to.", code=2)
    partial, old = to.with_name(f".{to.name}.partial"), to.with_name(f".{to.name}.old")
    try:
        for leftover in (partial, old):
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        if to.exists():
            to.rename(old)
        partial.rename(to)
        sync(to.parent)
    except OSError as error:
        raise disk_error(to, error, "choose another --to") from None
    finally:
        for leftover in (partial, old):
            shutil.rmtree(leftover, ignore_errors=True)


def _write_folder(request: ExportRequest, folder: Path) -> ExportFacts:
    """Writes the model, compares it with the trainer's, and writes facts and card."""
    # CTranslate2 knows this formula only. The trainer searches with it too when both are compared.
    trainer = load_torch_translator(request.folders, {"normalise": "length"})
    model = _require_transformer(trainer, request.folders[-1])
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    positions = count_positions(trainer.limit, trainer.search)
    table = model.positional_encoding(positions)[:positions].numpy()
    write_model(folder, make_spec(model.settings, weights, trainer.vocabulary, table), request.quantization)
    (folder / VOCABULARY).write_bytes(trainer.vocabulary.model)
    facts = ExportFacts(
        kind="ctranslate2",
        languages=trainer.languages,
        search=trainer.search.model_dump(mode="json"),
        limit=trainer.limit,
        positions=positions,
        normalizes=trainer.vocabulary.normalizes,
        quantization=request.quantization,
        parameters=sum(values.size for values in weights.values()),
        versions={name: version(name) for name in ("ctranslate2", "sentencepiece")} | {"lockstep": __version__},
        model=model.settings.model_dump(mode="json"),
        **_describe_run(request.folders),
    )
    write_facts(folder, facts)
    if request.held_out is not None:
        ours, theirs = (one.translate(request.held_out.sources) for one in (trainer, load_export(folder, device="cpu")))
        facts = facts.model_copy(update={"parity": compare(ours, theirs, request.held_out)})
        write_facts(folder, facts)
    size = (folder / "model.bin").stat().st_size
    (folder / CARD).write_text(write_card(facts, size, request.licence), encoding="utf-8")
    return facts


def _require_transformer(trainer: TorchTranslator, folder: Path) -> Transformer:
    if not isinstance(trainer.model, Transformer):
        raise LockstepError(
            f"The model in {folder} is no Transformer, and CTranslate2 runs Transformers only.",
            "Use it with `lockstep translate` and `lockstep serve`, or train model.name=transformer.",
            code=2,
        )
    return trainer.model


def compare(ours: list[str], theirs: list[str], held_out: HeldOutText) -> Parity:
    """Compares the translations of the trainer with those of an export."""
    bleu, signature = compute_bleu(ours, held_out.references)
    return Parity(
        text=held_out.name,
        sentences=len(ours),
        identical=sum(a == b for a, b in zip(ours, theirs, strict=True)),
        bleu_of_trainer=bleu,
        bleu_of_export=compute_bleu(theirs, held_out.references)[0],
        signature=signature,
    )


def _describe_run(folders: Sequence[Path]) -> dict[str, Any]:
    """Returns the name of the run, the steps, the scores of a single checkpoint, and the training text, as far as they are
    known: a model folder may be alone."""
    saved = [checkpoint for folder in folders if (checkpoint := read_checkpoint(folder.parent)) is not None]
    run = RunDirectory(folders[-1].resolve().parents[2])
    has_run = bool(saved) and run.choices.is_file()
    return {
        "run": run.path.name if has_run else folders[-1].name,
        "steps": [checkpoint.step for checkpoint in saved],
        "scores": _read_scores(saved[0], run) if len(saved) == 1 else {},
        "data": _describe_data(run) if has_run else {},
    }


def _read_scores(saved: Checkpoint, run: RunDirectory) -> dict[str, JsonValue]:
    """Returns the scores of the evaluation of this checkpoint, with sacreBLEU's signature."""
    evaluations = [line for line in read(run.journal).of("evaluation") if line.get("step") == saved.step]
    if not evaluations:
        return {}
    return {**evaluations[-1]["scores"], "signature": evaluations[-1].get("signature"), "set": "validation"}


def _describe_data(run: RunDirectory) -> dict[str, JsonValue]:
    facts = read_json(run.data)
    if facts is None:
        return {}
    try:
        train = facts["sets"]["train"]
        return {
            "digest": facts["digest"],
            "pairs": train["lines"],
            "source_words": train["source_plain_words"],
            "target_words": train["target_plain_words"],
            "files": [
                {
                    "set": file["set"],
                    "name": Path(file["path"]).name,
                    "bytes": file["bytes"],
                    "sha256": file.get("sha256"),
                }
                for file in facts.get("files", [])
            ],
        }
    except (KeyError, TypeError, AttributeError):
        raise damaged(run.data, "a part is missing or wrong") from None
