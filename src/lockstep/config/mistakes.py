"""Says what is wrong with the settings of a config, in plain sentences."""

import datetime
import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from lockstep.config.run_config import VARIANTS, RunConfig, accepts, enumerate_names, list_fields, list_owners
from lockstep.errors import LockstepError

_LIMITS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
"""The limit in the context of pydantic's error, and the words for it."""
_NAMES: dict[object, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("text", "texts"),
    Path: ("a path", "paths"),
}
"""What one value and several values of a type are called."""
_COUNTS = {2: "two", 3: "three"}
_EXAMPLES = ([100, 200], ["a", "b"])
"""Lists of numbers and of texts."""
_SHOWN_CHARACTERS = 60


def explain_mistakes(problems: Sequence[ErrorDetails], origin: str, overridden: Iterable[str]) -> LockstepError:
    """One error for all mistakes. Those that are not in one of the overridden settings are blamed on `origin`."""
    prefixes = tuple(f"{key}." for key in overridden)
    in_overrides, in_file = [], []
    for problem in problems:
        place = f"{_locate(problem)[0]}."
        is_new_group = problem["type"] == "extra_forbidden" and any(key.startswith(place) for key in prefixes)
        if place.startswith(prefixes) or is_new_group:
            in_overrides.append(_explain(problem))
        else:
            in_file.append(f"{origin}: {_explain(problem)}")
    remedy = f"`lockstep config explain{_known_key(problems)}` explains what can be set."
    return LockstepError("; ".join(dict.fromkeys(in_overrides + in_file)) + ".", remedy, code=2)


def _known_key(problems: Sequence[ErrorDetails]) -> str:
    """The setting or group of the only problem, or the most similar one, after a space. Empty if there are several."""
    keys = {_locate(problem)[0] for problem in problems}
    key = find_nearest(keys.pop()) if len(keys) == 1 else None
    return f" {key}" if key else ""


def _locate(problem: ErrorDetails) -> tuple[str, str | None]:
    """The dotted name of the setting, and the chosen model or strategy if the setting is one of theirs."""
    path = [str(part) for part in problem["loc"] if part != "[key]"]
    if problem["type"].startswith("union_tag"):
        return f"{path[0]}.name", None
    chosen = path.pop(1) if len(path) > 1 and path[0] in VARIANTS else None
    info, length = _find_field(path, chosen)
    if info is not None:
        path = path[:length]
    return ".".join(path), chosen


def _find_field(path: Sequence[str], chosen: str | None) -> tuple[FieldInfo | None, int]:
    """The field that the longest possible part of a path names, and the length of that part."""
    group: type[BaseModel] | None = RunConfig
    info: FieldInfo | None = None
    for length, name in enumerate(path):
        if group is None:
            return info, length  # the rest is a place inside of a list
        if name not in group.model_fields:
            return None, length
        info = group.model_fields[name]
        parts = (info.annotation, *get_args(info.annotation))
        groups = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
        if name in VARIANTS and group is RunConfig and chosen is not None:
            groups = [VARIANTS[name][chosen]]
        group = groups[0] if groups else None
    return info, len(path)


def _explain(problem: ErrorDetails) -> str:
    """What is wrong with a setting, as a part of a sentence."""
    key, chosen = _locate(problem)
    kind, value = problem["type"], problem["input"]
    group, _, setting = key.partition(".")
    if kind.startswith("union_tag"):
        expected = " or ".join(repr(name) for name in VARIANTS[group])
        given = value.get("name") if isinstance(value, dict) else value
        return f"{key}={_show(given)} is wrong: it must be {expected}"
    if kind == "extra_forbidden":
        return _explain_unknown(key, chosen)
    if kind == "invalid_key" or "[key]" in problem["loc"]:
        return f"the name {problem['loc'][-1 if kind == 'invalid_key' else -2]} in {group} is wrong: names are text"
    if kind == "value_error":
        return problem["msg"].removeprefix("Value error, ")
    if kind == "literal_error" and chosen is not None:
        owners = list_owners(group, lambda one: accepts(one, setting, value))
        if owners:
            return f"{key}={value} is not for {group}.name={chosen}; {enumerate_names(owners, 'has it', 'have it')}"
    return _explain_value(problem, key, chosen)


def _explain_unknown(key: str, chosen: str | None) -> str:
    group, _, setting = key.partition(".")
    near = find_nearest(key)
    if near == key and chosen is not None:
        owners = list_owners(group, lambda one: setting in one.model_fields)
        return f"{key} is not for {group}.name={chosen}; {enumerate_names(owners, 'has it', 'have it')}"
    return f"unknown setting {key}" + (f" (did you mean {near}?)" if near else "")


def _explain_value(problem: ErrorDetails, key: str, chosen: str | None) -> str:
    """What a value must be instead. For a value inside of a list, its place is named."""
    kind, value = problem["type"], problem["input"]
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{key}={_show(value)} is wrong: {key} is a group of settings, not a value"
    info, length = _find_field(key.split("."), chosen)
    inside = [part for part in problem["loc"][length + (chosen is not None) :] if isinstance(part, int)]
    if info is None:
        return f"{key}={_show(value)} is wrong"
    annotation, example = info.annotation, ""
    if get_origin(annotation) in (list, tuple):
        example = f", as in {_show(list(info.default or _EXAMPLES[get_args(annotation)[0] is not int]))}"
    subject = f"{key}={_show(value)}"
    if inside and kind != "missing":
        annotation, example = _item_type(annotation, inside[0]), ""
        subject = f"item {inside[0] + 1} of {key}, {_show(value)},"
    if kind in _LIMITS:
        limit, words = _LIMITS[kind]
        return f"{subject} is wrong: it must be {words} {problem['ctx'][limit]:,}"
    if kind == "finite_number":
        return f"{subject} is wrong: it must be a finite number"
    return f"{subject} is wrong: it must be {_describe_type(annotation)}{example}"


def _item_type(annotation: object, index: int) -> Any:
    """The type of an item of a list or a tuple."""
    parts = get_args(annotation)
    return parts[index] if get_origin(annotation) is tuple and index < len(parts) else parts[0]


def _describe_type(annotation: object, many: bool = False) -> str:
    """What a value of this type is, in words: `a whole number or null`, `a list of two texts`."""
    if annotation is type(None):
        return "null"
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _describe_type(parts[0], many)
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin in (Union, UnionType):
        if set(parts) == {Path, str}:
            return "paths or addresses" if many else "a path or an address"
        return " or ".join(_describe_type(part, many) for part in parts)
    if origin in (list, tuple):
        count = f"{_COUNTS[len(parts)]} " if origin is tuple else ""
        return f"{'lists' if many else 'a list'} of {count}{_describe_type(parts[0], many=True)}"
    return _NAMES.get(annotation, ("another value", "other values"))[many]


def _show(value: object) -> str:
    """A wrong value as the user wrote it, shortened if it is long."""
    if isinstance(value, datetime.date):
        text = value.isoformat()
    elif isinstance(value, str | float | Path):
        text = repr(str(value) if isinstance(value, Path) else value)
    else:
        text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000).split("\n")[0]
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def find_nearest(key: str) -> str | None:
    """The setting whose name is most similar to `key`; None if there is no similar one."""
    names = [name for name, _ in list_fields()]
    matches = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    if not matches:  # the right name in the wrong group
        matches = [name for name in names if name.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    return matches[0] if matches else None
