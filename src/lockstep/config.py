"""The whole configuration of a run: one tree of settings from a YAML file and `key=value` overrides."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError, model_validator
from pydantic.fields import FieldInfo

from lockstep.data.data_settings import BatchSettings, DataSettings
from lockstep.errors import LockstepError
from lockstep.models.model_settings import ModelSettings, TransformerSettings
from lockstep.parallel.strategy_settings import AllReduceSettings, StrategySettings
from lockstep.run.directory import RunDirectory
from lockstep.settings import FIXED, Fixed, Settings, flat
from lockstep.train.train_settings import OptimizerSettings, ScheduleSettings, TrainSettings
from lockstep.translate.search_settings import SearchSettings
from lockstep.watch.watch_settings import WatchSettings


class RunConfig(Settings):
    """Everything that decides what a run does."""

    task: Annotated[str, FIXED] = "auto"
    """What is learned: `translation`, `classification`, or `module:function` for a task that you wrote yourself
    (docs/develop/extend.md). `auto` is `classification` if data.images is set, else `translation`."""
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
    strategy: StrategySettings = AllReduceSettings()
    """How the workers exchange gradients; strategy.name says which strategy, and each one has its own settings."""
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
        self.data.check_input()
        return self

    @property
    def task_name(self) -> str:
        """The task, also where `auto` leaves it to the data."""
        if self.task != "auto":
            return self.task
        return "translation" if self.data.images is None else "classification"

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


MODEL_NAME, STRATEGY_NAME = "model.name", "strategy.name"


def _variants(group: str) -> dict[str, type[BaseModel]]:
    """The settings classes of a group, by the names that choose them."""
    classes = get_args(RunConfig.model_fields[group].annotation)
    return {name: one for one in classes for name in get_args(one.model_fields["name"].annotation)}


VARIANTS = {group: _variants(group) for group in ("model", "strategy")}
"""The groups whose `name` decides which settings they have."""
STRATEGY_0_1_0: dict[str, Any] = {
    "gradients": "fp32",
    "powersgd_rank": 8,
    "powersgd_start": 100,
    "bucket_mb": 25.0,
    "keep_gathered": False,
    "servers": 0,
    "mode": "sync",
    "staleness": None,
    "embeddings": "whole",
    "parameters": "cpu",
    "update": "cpu",
    "every": None,
    "outer_rate": 0.7,
    "outer_momentum": None,
    "restarts": 100,
    "dead_after_seconds": 2.0,
    "merge_seconds": 60.0,
}
"""The strategy settings of version 0.1.0 with their defaults. Every strategy accepted all of them and ignored those that it
did not read."""


def load(path: Path, overrides: list[str]) -> RunConfig:
    """Reads a YAML file and applies overrides such as `train.steps=2000`.

    Overrides of `model.name` and `strategy.name` are applied first, so all other overrides are for the model and the
    strategy that they name. A new model leaves all model settings of the file behind. A new strategy leaves those
    strategy settings of the file behind that it does not have."""
    tree = read_yaml(path)
    names = {key: override for override in overrides if (key := _key(override)) in (MODEL_NAME, STRATEGY_NAME)}
    for override in [*names.values(), *(override for override in overrides if _key(override) not in names)]:
        apply_override(tree, override)
    return build(tree, str(path), overrides)


def _key(override: str) -> str:
    return override.partition("=")[0].strip()


def strategy_setting(override: str) -> str | None:
    """The name of the strategy setting that an override sets, such as `mode`; None if it sets something else."""
    group, _, name = _key(override).partition(".")
    return name if group == "strategy" and name not in ("", "name") else None


def strategy_has(strategy: str, setting: str) -> bool:
    return strategy in VARIANTS["strategy"] and setting in VARIANTS["strategy"][strategy].model_fields


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
    run = RunDirectory(path.parent)
    drop_ignored(tree, of_run=path.name == run.config.name and run.choices.exists())
    return tree


def drop_ignored(tree: dict[str, Any], of_run: bool) -> None:
    """Removes strategy settings that version 0.1.0 wrote, or accepted, though the strategy does not have them.

    Those at their default are removed from every file. In the config of a run, where version 0.1.0 wrote the settings of
    all strategies, the others are removed too: they never had an effect, and the run must stay usable."""
    section = tree.get("strategy")
    if not isinstance(section, dict):
        return
    chosen = _strategy_class(section.get("name", "auto"))
    if chosen is None:
        return
    if of_run and section.keys() >= STRATEGY_0_1_0.keys():
        tree["strategy"] = _leave_behind(section, chosen)
    else:
        tree["strategy"] = {
            key: value
            for key, value in section.items()
            if key in chosen.model_fields or key not in STRATEGY_0_1_0 or value != STRATEGY_0_1_0[key]
        }


def _strategy_class(name: object) -> type[BaseModel] | None:
    return VARIANTS["strategy"].get(name) if isinstance(name, str) else None


def _leave_behind(section: dict[str, Any], chosen: type[BaseModel]) -> dict[str, Any]:
    """The settings without those that only other strategies accept. What none accepts stays, to be reported."""
    classes = VARIANTS["strategy"].values()
    return {
        key: value
        for key, value in section.items()
        if key == "name" or _accepts(chosen, key, value) or not any(_accepts(one, key, value) for one in classes)
    }


def _accepts(settings: type[BaseModel], key: str, value: object) -> bool:
    """Whether a settings class has this setting and this value is valid for it."""
    try:
        settings.model_validate({key: value})
    except ValidationError as error:
        return not any(problem["loc"][:1] == (key,) for problem in error.errors())
    return True


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
    if key.strip() == STRATEGY_NAME and node[last] != (before or AllReduceSettings().name):
        chosen = _strategy_class(node[last])
        tree["strategy"] = node if chosen is None else _leave_behind(node, chosen)


def build(tree: dict[str, Any], origin: str, overrides: Sequence[str] = ()) -> RunConfig:
    """`origin` is blamed for what is wrong, unless that came from the overrides."""
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        said = tuple(f"{_key(override)}." for override in overrides)
        problems = [dict(problem) for problem in error.errors()]
        told = [_explain(one) for one in problems if f"{_place(one)[0]}.".startswith(said)]
        read = [_explain(one) for one in problems if not f"{_place(one)[0]}.".startswith(said)]
        raise LockstepError("; ".join(told + [f"{origin}: {one}" for one in read]) + ".", _REMEDY, code=2) from None


_REMEDY = "`lockstep config explain KEY` tells what a setting means."


def _place(problem: dict[str, Any]) -> tuple[str, str | None]:
    """The dotted name of the setting, and the model or strategy that was chosen if the setting is one of theirs."""
    path = [str(part) for part in problem["loc"]]
    if problem["type"] == "union_tag_invalid":
        return f"{path[0]}.name", None
    chosen = path.pop(1) if len(path) > 1 and path[0] in VARIANTS else None
    return ".".join(path), chosen


def _explain(problem: dict[str, Any]) -> str:
    key, chosen = _place(problem)
    group, _, setting = key.partition(".")
    if problem["type"] == "union_tag_invalid":
        expected = problem["ctx"]["expected_tags"].replace(", ", " or ")
        return f"{key}={problem['ctx']['tag']!r} is wrong: input should be {expected}"
    if problem["type"] == "extra_forbidden":
        near = nearest(key)
        if near == key and chosen is not None:
            owners = _owners(group, lambda one: setting in one.model_fields)
            return f"{key} is not for {group}.name={chosen}; {_enumerate(owners, 'has it', 'have it')}"
        return f"unknown setting {key}" + (f" (did you mean {near}?)" if near else "")
    if problem["type"] == "missing":
        return f"{key} is missing"
    message = str(problem["msg"])
    if problem["type"] == "value_error":
        return message.removeprefix("Value error, ")
    if problem["type"] == "literal_error" and chosen is not None:
        owners = _owners(group, lambda one: _accepts(one, setting, problem["input"]))
        if owners:
            known = _enumerate(owners, "has it", "have it")
            return f"{key}={problem['input']} is not for {group}.name={chosen}; {known}"
    return f"{key}={problem['input']!r} is wrong: {message[:1].lower()}{message[1:]}"


def _owners(group: str, has_it: Callable[[type[BaseModel]], bool]) -> list[str]:
    """The models or strategies for which this holds. `auto` is left out: it has the settings of allreduce."""
    return [name for name, one in VARIANTS[group].items() if has_it(one) and name != "auto"]


def _enumerate(names: list[str], one: str = "", several: str = "") -> str:
    """`a, b and c`, followed by the verb for one or for several."""
    text = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{text} {one if len(names) == 1 else several}".rstrip()


def nearest(key: str) -> str | None:
    """The setting whose name looks most like `key`."""
    names = [name for name, _ in fields()]
    found = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    if not found:  # the right name in the wrong group
        found = [name for name in names if name.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    return found[0] if found else None


def fields(model: type[BaseModel] = RunConfig, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every setting with its dotted name; groups come before their members. A setting that several models or strategies
    have comes once for each class of them, the default one first."""
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
    known: dict[str, list[FieldInfo]] = {}  # several where models or strategies share a setting's name
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
            "type": " | ".join(dict.fromkeys(part for info in infos for part in _parts_of_type(info))),
            "default": _default(name, infos),
            "text": _text(name, infos),
            "fixed": any(isinstance(mark, Fixed) for mark in infos[0].metadata),
        }
        for name, infos in leaves.items()
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
    everybody = _owners(key.partition(".")[0], lambda one: True)
    return text if owners == everybody else f"{text} Only for {_enumerate(owners)}."


def _sentences(info: FieldInfo) -> str:
    return " ".join((info.description or "").split())


def _default(key: str, infos: list[FieldInfo]) -> Any:
    """The default, followed by those of other models or strategies where they differ."""
    first = _shown_default(infos[0])
    variants = {} if key.endswith(".name") else _by_variant(key)
    defaults = {name: default for name, info in variants.items() if (default := _shown_default(info)) != first}
    return "; ".join([str(first), *(f"{name}: {default}" for name, default in defaults.items())]) if defaults else first


def _shown_default(info: FieldInfo) -> Any:
    return "(must be given)" if info.is_required() else _plain_default(info)


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
