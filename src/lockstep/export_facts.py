"""`lockstep.json` of an exported model, of any kind: reading and checking it."""

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from lockstep.errors import LockstepError

FACTS, FORMAT = "lockstep.json", 1
M = TypeVar("M", bound=BaseModel)


def is_export(folder: Path) -> bool:
    """Is this the folder of an exported model, of any kind?"""
    return (folder / FACTS).is_file()


def read_kind(folder: Path) -> str:
    """Returns what kind of export a folder is, such as `ctranslate2` or `onnx`."""
    return str(_read(folder).get("kind"))


def read_export(folder: Path, kind: str, does: str, schema: type[M]) -> M:
    """Returns the facts of an export. Raises if it is of another kind or version, or damaged. `does` is what a model of
    this kind does, such as `translates`."""
    facts = _read(folder)
    if facts.get("kind") != kind:
        raise LockstepError(
            f"The model in {folder} {does} nothing: it is an export of the kind {facts.get('kind')}.",
            "Name another export.",
            code=2,
        )
    if facts.get("format") != FORMAT:
        raise LockstepError(
            f"{folder} was exported by another version of Lockstep (format {facts.get('format')}).",
            "Use that version, or export the run again.",
        )
    try:
        return schema.model_validate(facts)
    except ValidationError as error:
        what = ".".join(map(str, error.errors()[0]["loc"]))
        raise LockstepError(f"{folder / FACTS} is damaged: {what} is wrong.", "Export the run again.") from None


def _read(folder: Path) -> dict[str, Any]:
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise LockstepError(f"{folder / FACTS} cannot be read.", "Export the run again.") from None
    return facts if isinstance(facts, dict) else {}
