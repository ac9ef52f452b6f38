"""What an export folder contains, beside CTranslate2's own files: `lockstep.json`, read and written here.

model.bin, config.json, shared_vocabulary.json   the model, as CTranslate2 stores it
sentencepiece.model                              the vocabulary
lockstep.json                                    what this module describes
README.md                                        the model card
"""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from lockstep.errors import LockstepError
from lockstep.translate.search_settings import SearchSettings

FACTS, VOCABULARY, CARD = "lockstep.json", "sentencepiece.model", "README.md"
FORMAT = 1


class Parity(BaseModel):
    """How the translations of an export agree with those of the trainer."""

    text: str  # what was translated
    sentences: int
    identical: int
    bleu_of_trainer: float | None = None
    bleu_of_export: float | None = None
    signature: str | None = None


class ExportFacts(BaseModel):
    """The contents of `lockstep.json` of a translation model."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    kind: str  # ctranslate2
    languages: tuple[str, str]
    search: dict[str, JsonValue]
    limit: int  # pieces of the longest source sentence in training
    positions: int  # rows of the position table: no sentence can be longer
    normalizes: bool  # is text normalized before it is encoded?
    quantization: str
    parameters: int
    run: str  # name of the run
    steps: list[int]  # of the checkpoints; several were averaged
    versions: dict[str, str]
    model: dict[str, JsonValue]  # the model settings
    scores: dict[str, JsonValue] = {}  # of the evaluation in training
    data: dict[str, JsonValue] = {}  # the training text
    parity: Parity | None = None

    @property
    def search_settings(self) -> SearchSettings:
        return SearchSettings.model_validate(self.search)


def is_export(folder: Path) -> bool:
    """Is this the folder of an exported model, of any kind?"""
    return (folder / FACTS).is_file()


def read_kind(folder: Path) -> str:
    """Returns what kind of export a folder is, such as `ctranslate2` or `onnx`."""
    return str(_read(folder).get("kind", "unknown"))


def read_facts(folder: Path) -> ExportFacts:
    facts = _read(folder)
    if facts.get("kind") != "ctranslate2":
        raise LockstepError(
            f"The model in {folder} translates nothing: it is an export of the kind {facts.get('kind')}.",
            "Name an export of a translation model.",
            code=2,
        )
    if facts.get("format") != FORMAT:
        raise LockstepError(
            f"{folder} was exported by another version of Lockstep (format {facts.get('format')}).",
            "Use that version, or export the run again.",
        )
    try:
        return ExportFacts.model_validate(facts)
    except ValidationError as error:
        what = ".".join(map(str, error.errors()[0]["loc"]))
        raise LockstepError(f"{folder / FACTS} is damaged: {what} is wrong.", "Export the run again.") from None


def _read(folder: Path) -> dict[str, Any]:
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise LockstepError(f"{folder / FACTS} cannot be read.", "Export the run again.") from None
    return facts if isinstance(facts, dict) else {}


def write_facts(folder: Path, facts: ExportFacts) -> None:
    (folder / FACTS).write_text(facts.model_dump_json(indent=1), encoding="utf-8")
