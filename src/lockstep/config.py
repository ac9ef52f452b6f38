"""The configuration of a run: one tree of settings, from a YAML file and `key=value` overrides."""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Self, TypedDict, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, JsonValue, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, to_jsonable_python

from lockstep.data.data_settings import BatchSettings, DataSettings
from lockstep.errors import LockstepError
from lockstep.models.model_settings import ModelSettings, TransformerSettings
from lockstep.parallel.strategy_settings import AllReduceSettings, StrategySettings
from lockstep.run.directory import RunDirectory
from lockstep.settings import FIXED, Settings, flat, is_fixed
from lockstep.train.train_settings import OptimizerSettings, ScheduleSettings, TrainSettings
from lockstep.translate.search_settings import SearchSettings
from lockstep.watch.watch_settings import WatchSettings


class RunConfig(Settings):
    """All settings of a run."""

    task: Annotated[str, FIXED] = "auto"
    """What is learned: `translation`, `classification`, or `module:function` for a task that you wrote yourself
    (docs/develop/extend.md). `auto` is `classification` if data.images is set, else `translation`."""
    data: DataSettings
    """The text or images to train on."""
    batch: BatchSettings
    """How many sentences or images make up a step, and in which order."""
    model: ModelSettings = TransformerSettings()
    """The model to train. model.name chooses it (default: transformer), and each model has its own settings."""
    train: TrainSettings = TrainSettings()
    """How long to train, how often to evaluate and save, and in which precision."""
    optimizer: OptimizerSettings = OptimizerSettings()
    """The optimizer, which turns gradients into updates of the weights."""
    schedule: ScheduleSettings = ScheduleSettings()
    """The learning rate as a function of the step."""
    strategy: StrategySettings = AllReduceSettings()
    """How the workers exchange gradients. strategy.name chooses the strategy, and each strategy has its own settings."""
    search: SearchSettings = SearchSettings()
    """Beam search, in evaluations during training and in `lockstep evaluate` and `lockstep translate`."""
    watch: WatchSettings = WatchSettings()
    """What is measured during training, besides loss and scores."""
    own: Annotated[dict[str, Any], FIXED] = {}
    """Settings that your own task reads (see `task`). You choose their names; the built-in tasks accept none."""

    @model_validator(mode="after")
    def _fits_the_task(self) -> Self:
        if ":" in self.task:
            return self  # a task of the user checks its settings itself
        if self.own:
            raise ValueError(f"own.{next(iter(self.own))} is only for your own task, and task is {self.task}")
        self.data.check_input()
        return self

    @property
    def task_name(self) -> str:
        """The name of the task; `auto` is resolved by the data."""
        if self.task != "auto":
            return self.task
        return "translation" if self.data.images is None else "classification"

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


Tree = dict[str, JsonValue]
"""Settings as YAML has them: groups are dictionaries, and nothing is checked yet."""


class SettingFacts(TypedDict):
    """What `lockstep config explain` says about a setting."""

    key: str
    type: str
    default: JsonValue
    text: str
    fixed: bool


MODEL_NAME, STRATEGY_NAME = "model.name", "strategy.name"


def _find_variants(group: str) -> dict[str, type[BaseModel]]:
    """The settings classes of a group, by the names that choose them."""
    classes = get_args(RunConfig.model_fields[group].annotation)
    return {name: one for one in classes for name in get_args(one.model_fields["name"].annotation)}


VARIANTS = {group: _find_variants(group) for group in ("model", "strategy")}
"""The groups whose `name` decides which settings they have."""
STRATEGY_0_1_0: Tree = {
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
    """Reads a YAML file, applies overrides such as `train.steps=2000`, and checks the result.

    Overrides of `model.name` and `strategy.name` are applied first, so all other overrides are for the model and the
    strategy that they name. A new model drops all model settings of the file. A new strategy drops those strategy
    settings of the file that it does not have."""
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
    """Reads a config file without checking its settings. What makes it unreadable becomes a sentence for the user."""
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = sorted(str(p) for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        hint = f"Config files in that folder: {', '.join(near[:8])}." if near else "Check the path."
        raise LockstepError(f"Config file {path} does not exist.", hint, code=2) from None
    except NotADirectoryError:
        raise LockstepError(
            f"Config file {path} does not exist: {path.parent} is a file.", "Check the path.", 2
        ) from None
    except PermissionError:
        raise LockstepError(
            f"Config file {path} cannot be read: permission denied.", "Check its permissions.", 2
        ) from None
    except IsADirectoryError:
        raise LockstepError(
            f"{path} is a folder, not a config file.", "Give the path of a .yaml file.", code=2
        ) from None
    except UnicodeDecodeError as error:
        raise LockstepError(f"Config file {path} is not UTF-8 text ({error.reason}).", "Save it as UTF-8.", 2) from None
    except (yaml.YAMLError, ValueError) as error:  # a ValueError is a date that does not exist
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "this is not valid YAML"
        raise LockstepError(f"Config file {path}{where}: {problem}.", "Correct the YAML there.", code=2) from None
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise LockstepError(f"Config file {path} has no settings.", "Write them as `key: value` lines.", code=2)
    run = RunDirectory(path.parent)
    drop_ignored(tree, from_run=path.name == run.config.name and run.choices.exists())
    return tree


def drop_ignored(tree: Tree, from_run: bool) -> None:
    """Removes strategy settings that version 0.1.0 wrote, or accepted, though the strategy does not have them.

    Those at their default are removed from every file. In the config of a run, where version 0.1.0 wrote the settings of
    all strategies, the others are removed too: they never had an effect, and the run must stay usable."""
    section = tree.get("strategy")
    if not isinstance(section, dict):
        return
    chosen = _strategy_class(section.get("name", "auto"))
    if chosen is None:
        return
    if from_run and section.keys() >= STRATEGY_0_1_0.keys():
        tree["strategy"] = _drop_foreign(section, chosen)
    else:
        tree["strategy"] = {
            key: value
            for key, value in section.items()
            if key in chosen.model_fields or key not in STRATEGY_0_1_0 or value != STRATEGY_0_1_0[key]
        }


def _strategy_class(name: JsonValue) -> type[BaseModel] | None:
    """The settings class of a strategy; None if there is no such strategy."""
    return VARIANTS["strategy"].get(name) if isinstance(name, str) else None


def _drop_foreign(section: Tree, chosen: type[BaseModel]) -> Tree:
    """The settings without those that only other strategies accept. What no strategy accepts stays, to be reported."""
    classes = VARIANTS["strategy"].values()
    return {
        key: value
        for key, value in section.items()
        if key == "name" or _accepts(chosen, key, value) or not any(_accepts(one, key, value) for one in classes)
    }


def _accepts(settings: type[BaseModel], key: str, value: JsonValue) -> bool:
    """Does this settings class have this setting, and is the value valid for it?"""
    try:
        settings.model_validate({key: value})
    except ValidationError as error:
        return not any(problem["loc"][:1] == (key,) for problem in error.errors())
    return True


def apply_override(tree: Tree, override: str) -> None:
    """Sets one setting of the tree, in place. The value is read as YAML; what is not YAML is text."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise LockstepError(
            f"{override!r} is not a setting with a value.",
            "Write settings as key=value, for example train.steps=2000.",
            code=2,
        )
    *parents, last = key.strip().split(".")
    node = tree
    for parent in parents:
        if node.get(parent) is None:
            node[parent] = {}
        child = node[parent]
        if not isinstance(child, dict):
            remedy = f"Leave out .{last}, or look at `lockstep config explain`."
            raise LockstepError(f"{key} cannot be set: {parent} is a value, not a group.", remedy, code=2)
        node = child
    before = node.get(last)
    try:
        node[last] = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        node[last] = text
    if key.strip() == MODEL_NAME and node[last] != (before or TransformerSettings().name):
        tree["model"] = {last: node[last]}
    if key.strip() == STRATEGY_NAME and node[last] != (before or AllReduceSettings().name):
        chosen = _strategy_class(node[last])
        tree["strategy"] = node if chosen is None else _drop_foreign(node, chosen)


def build(tree: Mapping[str, object], origin: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Checks the settings. An error names all mistakes; those that are not in an override are blamed on `origin`."""
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        problems = error.errors()
        overridden = tuple(f"{_key(override)}." for override in overrides)
        in_overrides, in_file = [], []
        for problem in problems:
            if f"{_locate(problem)[0]}.".startswith(overridden):
                in_overrides.append(_explain(problem))
            else:
                in_file.append(f"{origin}: {_explain(problem)}")
        remedy = f"`lockstep config explain{_known_key(problems)}` explains what can be set."
        raise LockstepError("; ".join(in_overrides + in_file) + ".", remedy, code=2) from None


def _known_key(problems: Sequence[ErrorDetails]) -> str:
    """The setting or group of the only problem, or the most similar one, after a space. Empty if there are several."""
    keys = {_locate(problem)[0] for problem in problems}
    key = find_nearest(keys.pop()) if len(keys) == 1 else None
    return f" {key}" if key else ""


_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list, as in [a, b]",
    "tuple": "a list, as in [a, b]",
    "path": "a path",
}
"""What a value must be, by the first word of the type of pydantic's error, such as `int_parsing`."""


def _locate(problem: ErrorDetails) -> tuple[str, str | None]:
    """The dotted name of the setting, and the chosen model or strategy if the setting is one of theirs."""
    path = [str(part) for part in problem["loc"]]
    if problem["type"] == "union_tag_invalid":
        return f"{path[0]}.name", None
    chosen = path.pop(1) if len(path) > 1 and path[0] in VARIANTS else None
    return ".".join(path), chosen


def _explain(problem: ErrorDetails) -> str:
    """What is wrong with a setting, as a part of a sentence."""
    key, chosen = _locate(problem)
    kind, message, value = problem["type"], problem["msg"], problem["input"]
    group, _, setting = key.partition(".")
    if kind == "union_tag_invalid":
        expected = problem["ctx"]["expected_tags"].replace(", ", " or ")
        return f"{key}={problem['ctx']['tag']!r} is wrong: it must be {expected}"
    if kind == "extra_forbidden":
        near = find_nearest(key)
        if near == key and chosen is not None:
            owners = _list_owners(group, lambda one: setting in one.model_fields)
            return f"{key} is not for {group}.name={chosen}; {_enumerate(owners, 'has it', 'have it')}"
        return f"unknown setting {key}" + (f" (did you mean {near}?)" if near else "")
    if kind == "missing":
        return f"{key} is missing"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if kind == "literal_error" and chosen is not None:
        owners = _list_owners(group, lambda one: _accepts(one, setting, value))
        if owners:
            return f"{key}={value} is not for {group}.name={chosen}; {_enumerate(owners, 'has it', 'have it')}"
    return f"{key}={value!r} is wrong: {_expectation(kind, message, key)}"


def _expectation(kind: str, message: str, key: str) -> str:
    """What a value must be, in the words of this project where there are some, else in those of pydantic."""
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{key} is a group of settings, not a value"
    expected = _EXPECTED.get(kind.partition("_")[0])
    if expected is not None:
        return f"it must be {expected}"
    message = message.replace("Input should be", "it must be", 1)
    return f"{message[:1].lower()}{message[1:]}"


def _list_owners(group: str, has_it: Callable[[type[BaseModel]], bool]) -> list[str]:
    """The models or strategies whose settings class satisfies `has_it`, without `auto`, which is the same as allreduce."""
    return [name for name, one in VARIANTS[group].items() if has_it(one) and name != "auto"]


def _enumerate(names: list[str], one: str = "", several: str = "") -> str:
    """`a, b and c`, followed by the verb for one or for several."""
    text = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{text} {one if len(names) == 1 else several}".rstrip()


def find_nearest(key: str) -> str | None:
    """The setting whose name is most similar to `key`; None if there is no similar one."""
    names = [name for name, _ in list_fields()]
    matches = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    if not matches:  # the right name in the wrong group
        matches = [name for name in names if name.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    return matches[0] if matches else None


def list_fields(model: type[BaseModel] = RunConfig, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yields every setting with its dotted name; groups come before their members. A setting that several models or
    strategies have comes once for each of their classes, the default class first."""
    for name, info in model.model_fields.items():
        yield prefix + name, info
        for part in (info.annotation, *get_args(info.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from list_fields(part, f"{prefix}{name}.")


Changes = dict[str, tuple[JsonValue, JsonValue]]
"""The old and the new value of settings, by their dotted names; None also where a setting did not exist."""


def differences(old: RunConfig, new: RunConfig) -> tuple[Changes, Changes]:
    """What changed between two configs: (settings that a resumed run must keep, settings that it may change)."""
    before, after = flat(old.model_dump(mode="json")), flat(new.model_dump(mode="json"))
    fixed_names = {name for name, info in list_fields() if is_fixed(info)}
    fixed: Changes = {}
    free: Changes = {}
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            must_keep = key in fixed_names or key.partition(".")[0] in fixed_names
            (fixed if must_keep else free)[key] = (before.get(key), after.get(key))
    return fixed, free


def describe(key: str | None = None) -> list[SettingFacts]:
    """Describes one setting, all settings of a group, or all settings."""
    known: dict[str, list[FieldInfo]] = {}  # several fields where models or strategies share the name of a setting
    for name, info in list_fields():
        known.setdefault(name, []).append(info)
    if key is not None and key not in known:
        near = find_nearest(key)
        hint = f"Did you mean {near}?" if near else "`lockstep config explain` lists all settings."
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
    everybody = _list_owners(key.partition(".")[0], lambda one: True)
    return text if owners == everybody else f"{text} Only for {_enumerate(owners)}."


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
