"""What an export folder contains, beside CTranslate2's own files: `lockstep.json`, read and written here.

model.bin, config.json, shared_vocabulary.json   the model, as CTranslate2 stores it
sentencepiece.model                              the vocabulary
lockstep.json                                    what this module describes
README.md                                        the model card
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue

from lockstep.export_facts import FACTS, FORMAT, read_export

VOCABULARY, CARD = "sentencepiece.model", "README.md"


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


def read_facts(folder: Path) -> ExportFacts:
    """Returns the facts of an exported translation model."""
    return read_export(folder, "ctranslate2", "translates", ExportFacts)


def write_facts(folder: Path, facts: ExportFacts) -> None:
    (folder / FACTS).write_text(facts.model_dump_json(indent=1), encoding="utf-8")
