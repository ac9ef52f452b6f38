"""The whole configuration of a run: one tree of settings from a YAML file and `key=value` overrides."""

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError, model_validator
from pydantic.fields import FieldInfo

from lockstep.data.data_settings import BatchSettings, DataSettings
from lockstep.errors import LockstepError
from lockstep.models.model_settings import ModelSettings, TransformerSettings
from lockstep.parallel.strategy_settings import StrategySettings
from lockstep.settings import FIXED, Fixed, Settings, flat
from lockstep.train.train_settings import OptimizerSettings, ScheduleSettings, TrainSettings
from lockstep.translate.search_settings import SearchSettings
from lockstep.watch.watch_settings import WatchSettings


class RunConfig(Settings):
    """Everything that decides what a run does."""

    task: Annotated[str, FIXED] = "auto"
    """What is learned: `translation`, `classification`, or `module:function` of your own (docs/extend.md); `auto` goes by
    the data."""
    data: DataSettings
    """What text or images are learned from."""
    batch: BatchSettings
    """How sentences or images are put together into steps."""
    model: ModelSettings = TransformerSettings()
    """What is trained; model.name says which, and a transformer needs not say it."""
    train: TrainSettings = TrainSettings()
    """How long and how carefully."""
    optimizer: OptimizerSettings = OptimizerSettings()
    """How a gradient becomes an update."""
    schedule: ScheduleSettings = ScheduleSettings()
    """The learning rate."""
    strategy: StrategySettings = StrategySettings()
    """How gradients cross processes."""
    search: SearchSettings = SearchSettings()
    """How translations are found, in evaluation and afterwards."""
    watch: WatchSettings = WatchSettings()
    """What is observed beside the training."""
    own: Annotated[dict[str, Any], FIXED] = {}
    """Settings that a task of your own reads, by names of your own."""

    @model_validator(mode="after")
    def _fits_the_task(self) -> Self:
        if ":" in self.task:
            return self  # of the user's own: it reads what it wants
        if self.own:
            raise ValueError(f"own.{next(iter(self.own))} is for a task of your own, not for task={self.task}")
        self.data.check_named()
        return self

    @property
    def task_name(self) -> str:
        """The task, also where `auto` leaves it to the data."""
        if self.task != "auto":
            return self.task
        return "translation" if self.data.images is None else "classification"

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


MODEL_NAME = "model.name"


def load(path: Path, overrides: list[str]) -> RunConfig:
    """Reads a YAML file and applies overrides such as `train.steps=2000`. Naming another model than the file does leaves
    the settings of the file's model behind; those among the overrides are for the new one, wherever they stand."""
    tree = read_yaml(path)
    for override in sorted(overrides, key=lambda override: not override.startswith(f"{MODEL_NAME}=")):
        apply_override(tree, override)
    return build(tree, str(path), overrides)


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = sorted(str(p) for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        hint = f"There are: {', '.join(near[:8])}." if near else "Check the path."
        raise LockstepError(f"Config file {path} does not exist.", hint, code=2) from None
    except NotADirectoryError:
        raise LockstepError(
            f"Config file {path} does not exist: {path.parent} is a file.", "Check the path.", 2
        ) from None
    except PermissionError:
        raise LockstepError(f"Config file {path} may not be read.", "Check its rights.", code=2) from None
    except IsADirectoryError:
        raise LockstepError(f"{path} is a folder, not a config file.", "Name a .yaml file.", code=2) from None
    except UnicodeDecodeError as error:
        raise LockstepError(f"Config file {path} is not UTF-8 text ({error.reason}).", "Save it as UTF-8.", 2) from None
    except (yaml.YAMLError, ValueError) as error:  # a ValueError is a date that does not exist
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it is not valid YAML"
        raise LockstepError(f"Config file {path}{where}: {problem}.", "Correct the line.", code=2) from None
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise LockstepError(f"Config file {path} holds no settings.", "Write it as `key: value` lines.", code=2)
    return tree


def apply_override(tree: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise LockstepError(
            f"Cannot read {override!r}.", "Write overrides as key=value, e.g. train.steps=2000.", code=2
        )
    *parents, last = key.strip().split(".")
    node = tree
    for parent in parents:
        if node.get(parent) is None:
            node[parent] = {}
        node = node[parent]
        if not isinstance(node, dict):
            raise LockstepError(f"{key} cannot be set: {parent} is a value, not a group.", code=2)
    before = node.get(last)
    try:
        node[last] = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        node[last] = text
    if key.strip() == MODEL_NAME and node[last] != (before or TransformerSettings().name):
        tree["model"] = {last: node[last]}


def build(tree: dict[str, Any], origin: str, overrides: Sequence[str] = ()) -> RunConfig:
    """`origin` is blamed for what is wrong, unless that came from the overrides."""
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        said = tuple(f"{override.partition('=')[0].strip()}." for override in overrides)
        problems = [dict(problem) for problem in error.errors()]
        told = [_explain(one) for one in problems if f"{_place(one)[0]}.".startswith(said)]
        read = [_explain(one) for one in problems if not f"{_place(one)[0]}.".startswith(said)]
        raise LockstepError("; ".join(told + [f"{origin}: {one}" for one in read]) + ".", _REMEDY, code=2) from None


_REMEDY = "`lockstep config explain KEY` tells what a setting means."


def _place(problem: dict[str, Any]) -> tuple[str, str | None]:
    """The setting's name, and the model whose setting it is."""
    path = [str(part) for part in problem["loc"]]
    model = path.pop(1) if path[:1] == ["model"] and len(path) > 1 else None
    return ".".join(path), model


def _explain(problem: dict[str, Any]) -> str:
    key, model = _place(problem)
    if problem["type"] == "union_tag_invalid":
        expected = problem["ctx"]["expected_tags"].replace(", ", " or ")
        return f"{MODEL_NAME}={problem['ctx']['tag']!r} is wrong: input should be {expected}"
    if problem["type"] == "extra_forbidden":
        near = nearest(key)
        if near == key:
            return f"{key} is not for {MODEL_NAME}={model}"
        return f"unknown setting {key}" + (f" (did you mean {near}?)" if near else "")
    if problem["type"] == "missing":
        return f"{key} is missing"
    message = str(problem["msg"])
    if problem["type"] == "value_error":
        return message.removeprefix("Value error, ")
    return f"{key}={problem['input']!r} is wrong: {message[:1].lower()}{message[1:]}"


def nearest(key: str) -> str | None:
    """The setting whose name looks most like `key`."""
    names = [name for name, _ in fields()]
    found = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    if not found:  # the right name in the wrong group
        found = [name for name in names if name.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    return found[0] if found else None


def fields(model: type[BaseModel] = RunConfig, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every setting with its dotted name; groups come before their members. What several models have comes once for
    each of them, the default model first."""
    for name, info in model.model_fields.items():
        yield prefix + name, info
        for part in (info.annotation, *get_args(info.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from fields(part, f"{prefix}{name}.")


def differences(old: RunConfig, new: RunConfig) -> tuple[dict[str, tuple[Any, Any]], dict[str, tuple[Any, Any]]]:
    """What changed between two configs: (settings a resumed run must keep, settings it may change)."""
    before, after = flat(old.model_dump(mode="json")), flat(new.model_dump(mode="json"))
    fixed = {name for name, info in fields() if any(isinstance(mark, Fixed) for mark in info.metadata)}
    kept: dict[str, tuple[Any, Any]] = {}
    free: dict[str, tuple[Any, Any]] = {}
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            keep = key in fixed or key.partition(".")[0] in fixed
            (kept if keep else free)[key] = (before.get(key), after.get(key))
    return kept, free


def describe(key: str | None = None) -> list[dict[str, Any]]:
    """Key, type, default and meaning of one setting, of all in a group, or of all."""
    known: dict[str, list[FieldInfo]] = {}  # more than one where models share a setting's name
    for name, info in fields():
        known.setdefault(name, []).append(info)
    if key is not None and key not in known:
        near = nearest(key)
        hint = f"Did you mean {near}?" if near else "`lockstep config explain` lists all."
        raise LockstepError(f"There is no setting {key}.", hint, code=2)
    chosen = {n: f for n, f in known.items() if key is None or n == key or n.startswith(f"{key}.")}
    leaves = {n: f for n, f in chosen.items() if not any(other.startswith(f"{n}.") for other in known)}
    return [
        {
            "key": name,
            "type": " | ".join(dict.fromkeys(display_as_type(info.annotation) for info in infos)),
            "default": _default(name, infos),
            "text": " ".join((infos[0].description or "").split()),
            "fixed": any(isinstance(mark, Fixed) for mark in infos[0].metadata),
        }
        for name, infos in leaves.items()
    ]


def _default(name: str, infos: list[FieldInfo]) -> Any:
    """With those of other models beside it, where they differ."""
    first, *others = ("(must be given)" if info.is_required() else _plain_default(info) for info in infos)
    models = get_args(RunConfig.model_fields["model"].annotation)
    different = [
        f"{model.model_fields['name'].default}: {default}"
        for info, default in zip(infos[1:], others, strict=True)
        for model in models
        if default != first and info in model.model_fields.values() and name != MODEL_NAME
    ]
    return "; ".join([str(first), *different]) if different else first


def _plain_default(info: FieldInfo) -> Any:
    value = info.get_default(call_default_factory=True)
    return str(value) if isinstance(value, Path) else value


def display_as_type(annotation: Any) -> str:
    """`Literal['a', 'b'] | None` as a person would write it: a | b | none."""
    if annotation is type(None):
        return "none"
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
    return {"int": "whole number", "float": "number", "str": "text", "bool": "true | false", "Path": "path"}.get(
        annotation.__name__, annotation.__name__
    )
