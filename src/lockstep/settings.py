"""The base class of all settings. Each package defines its settings next to the code that reads them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, JsonValue, PlainValidator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

_NESTED = ("schema", "fields", "choices", "items_schema", "keys_schema", "values_schema")
"""Where a core schema contains other ones."""


def _refuse_boolean(value: object) -> object:
    """YAML reads `yes` and `no` as booleans, and pydantic would take them as 1 and 0."""
    if isinstance(value, bool):
        raise PydanticCustomError("boolean_as_number", "it must be a number")
    return value


def _guard_numbers(part: Any) -> Any:
    """Returns a core schema, or a part of one, in which no number takes a boolean."""
    if isinstance(part, list | tuple):
        return type(part)(_guard_numbers(one) for one in part)
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind in ("int", "float"):
        return core_schema.no_info_before_validator_function(_refuse_boolean, part)
    if kind == "function-before" and part["function"]["function"] is _refuse_boolean:
        return part
    nested = _NESTED if isinstance(kind, str) else part  # the fields of a model have no type of their own
    return part | {key: _guard_numbers(part[key]) for key in nested if key in part}


class Settings(BaseModel):
    """A typed group of settings. Unknown keys are errors, and the docstring of a field is its explanation."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: CoreSchema = _guard_numbers(handler(source))
        return schema


class NamedSettings(Settings):
    """One of several groups of settings that are distinguished by their `name`. The JSON schema requires the name, so that
    a section without it is valid only for the default group."""

    model_config = ConfigDict(json_schema_extra={"required": ["name"]})


class Fixed:
    """Marks a setting (as `Annotated` metadata) that a resumed run must keep, because its state depends on it."""


FIXED = Fixed()


def is_fixed(info: FieldInfo) -> bool:
    """Must a resumed run keep this setting?"""
    return any(isinstance(mark, Fixed) for mark in info.metadata)


def _path_or_address(value: object) -> Path | str:
    if isinstance(value, str):
        return value if "://" in value else Path(value)
    if isinstance(value, Path):
        return value
    raise PydanticCustomError("place_type", "it must be a path or an address")


Place = Annotated[Path | str, PlainValidator(_path_or_address, json_schema_input_type=str)]
"""A path, or an address such as s3://bucket/folder, which stays text, because a path would lose one of its slashes."""


def flat(tree: Mapping[str, JsonValue], prefix: str = "") -> dict[str, JsonValue]:
    """The values of a tree of settings by their dotted names, such as `train.steps`."""
    values: dict[str, JsonValue] = {}
    for name, value in tree.items():
        values |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return values
