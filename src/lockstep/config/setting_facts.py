"""What `lockstep config explain` says about settings: meaning, type and default."""

from pathlib import Path
from types import UnionType
from typing import Annotated, Literal, TypedDict, Union, get_args, get_origin

import yaml
from pydantic import JsonValue
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from lockstep.config.mistakes import find_nearest
from lockstep.config.run_config import VARIANTS, RunConfig, enumerate_names, list_fields, list_owners
from lockstep.errors import LockstepError
from lockstep.settings import is_fixed


class SettingFacts(TypedDict):
    """What `lockstep config explain` says about a setting."""

    key: str
    type: str
    default: JsonValue
    text: str
    fixed: bool


def describe(key: str | None = None) -> list[SettingFacts]:
    """Describes one setting, all settings of a group, or all settings."""
    known: dict[str, list[FieldInfo]] = {}  # several fields where models or strategies share the name of a setting
    for name, info in list_fields():
        known.setdefault(name, []).append(info)
    if key is not None and key not in known:
        near = find_nearest(key)
        hint = f"Did you mean {near}?" if near else "`lockstep config explain` lists the sections."
        raise LockstepError(f"There is no setting {key}.", hint, code=2)
    chosen = {n: f for n, f in known.items() if key is None or n == key or n.startswith(f"{key}.")}
    leaves = {n: f for n, f in chosen.items() if not any(other.startswith(f"{n}.") for other in known)}
    return [
        {
            "key": name,
            "type": " | ".join(dict.fromkeys(part for info in infos for part in _parts_of_type(info))),
            "default": _default(name, infos),
            "text": _text(name, infos),
            "fixed": is_fixed(infos[0]),
        }
        for name, infos in leaves.items()
    ]


class SectionFacts(TypedDict):
    """What `lockstep config explain` says about a section."""

    section: str
    settings: int
    text: str


def list_sections() -> list[SectionFacts]:
    """Every section of a config, with the first sentence about it and the number of its settings."""
    return [
        {
            "section": name,
            "settings": len(describe(name)),
            "text": f"{_sentences(info).partition('. ')[0].rstrip('.')}.",
        }
        for name, info in RunConfig.model_fields.items()
    ]


def _parts_of_type(info: FieldInfo) -> list[str]:
    return display_as_type(info.annotation).split(" | ")


def _by_variant(key: str) -> dict[str, FieldInfo]:
    """A setting of the models or the strategies, by the names of those that have it."""
    group, _, setting = key.partition(".")
    return {
        name: one.model_fields[setting]
        for name, one in VARIANTS.get(group, {}).items()
        if setting in one.model_fields and name != "auto"
    }


def _text(key: str, infos: list[FieldInfo]) -> str:
    """The explanation of a setting. Where models or strategies differ in having it, or in its meaning, it names them."""
    names: dict[str, list[str]] = {}
    for name, info in _by_variant(key).items():
        names.setdefault(_sentences(info), []).append(name)
    if not names:
        return _sentences(infos[0])
    if len(names) > 1:
        return " ".join(f"{', '.join(owners)}: {text}" for text, owners in names.items())
    (text, owners), *_ = names.items()
    everybody = list_owners(key.partition(".")[0], lambda one: True)
    return text if owners == everybody else f"{text} Only for {enumerate_names(owners)}."


def _sentences(info: FieldInfo) -> str:
    return " ".join((info.description or "").split())


def _default(key: str, infos: list[FieldInfo]) -> JsonValue:
    """The default, followed by those of other models or strategies where they differ."""
    first = _plain_default(infos[0])
    variants = {} if key.endswith(".name") else _by_variant(key)
    others = {name: default for name, info in variants.items() if (default := _plain_default(info)) != first}
    if not others:
        return first
    return "; ".join([as_yaml(first), *(f"{name}: {as_yaml(default)}" for name, default in others.items())])


def _plain_default(info: FieldInfo) -> JsonValue:
    if info.is_required():
        return "(must be given)"
    default: JsonValue = to_jsonable_python(info.get_default(call_default_factory=True))
    return default


def as_yaml(value: JsonValue) -> str:
    """A value as one writes it in a config file or an override, in one line."""
    if isinstance(value, str):
        return value
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")


TYPE_NAMES: dict[type, str] = {int: "whole number", float: "number", str: "text", bool: "true | false", Path: "path"}


def display_as_type(annotation: object) -> str:
    """`Literal['a', 'b'] | None` as one writes it in a config file: a | b | null."""
    if annotation is type(None):
        return "null"
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(str(part) for part in parts)
    if origin is Annotated:
        return display_as_type(parts[0])
    if origin in (Union, UnionType):
        if set(parts) == {Path, str}:
            return "path or address"
        return " | ".join(display_as_type(part) for part in parts)
    if origin is dict:
        return "any settings"
    if origin in (list, tuple):
        return f"list of {', '.join(dict.fromkeys(display_as_type(part) for part in parts))}"
    return TYPE_NAMES.get(annotation, annotation.__name__) if isinstance(annotation, type) else str(annotation)
