"""The base of every settings class. Each package keeps its own settings beside the code that reads them."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainValidator
from pydantic_core import PydanticCustomError


class Settings(BaseModel):
    """A typed group of settings: unknown keys are errors, the text under a field is its explanation."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )


class NamedSettings(Settings):
    """One of several groups of settings that are told apart by their `name`. In a JSON schema the name is required, so that
    a section without it is valid for the default group alone."""

    model_config = ConfigDict(json_schema_extra={"required": ["name"]})


class Fixed:
    """Marks a setting (as `Annotated` metadata) that a resumed run must keep, because its state depends on it."""


FIXED = Fixed()


def _path_or_address(value: Any) -> Path | str:
    if isinstance(value, str):
        return value if "://" in value else Path(value)
    if isinstance(value, Path):
        return value
    raise PydanticCustomError("path_type", "input is not a path or an address")


Place = Annotated[Path | str, PlainValidator(_path_or_address, json_schema_input_type=str)]
"""A path, or an address such as s3://bucket/folder, which stays text: a path would lose one of its slashes."""


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A tree of settings as dotted names."""
    values: dict[str, Any] = {}
    for name, value in tree.items():
        values |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return values
