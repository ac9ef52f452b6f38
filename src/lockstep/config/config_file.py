"""Reads a config file and applies `key=value` overrides."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, JsonValue, ValidationError

from lockstep.config.mistakes import explain_mistakes
from lockstep.config.run_config import VARIANTS, RunConfig, accepts
from lockstep.errors import LockstepError
from lockstep.models.model_settings import TransformerSettings
from lockstep.parallel.strategy_settings import AllReduceSettings
from lockstep.run.directory import RunDirectory
from lockstep.yaml_text import parse_yaml

Tree = dict[str, JsonValue]
"""Settings as YAML has them: groups are dictionaries, and nothing is checked yet."""


MODEL_NAME, STRATEGY_NAME = "model.name", "strategy.name"
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")
"""NUL, and halves of characters, which are also what bytes that are not UTF-8 become on a command line."""


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
    return build(read_tree(path, overrides), str(path), overrides)


def read_tree(path: Path, overrides: Sequence[str]) -> Tree:
    """Reads a YAML file and applies the overrides, as `load` does, but does not check the result."""
    tree = read_yaml(path)
    names = {key: override for override in overrides if (key := _key(override)) in (MODEL_NAME, STRATEGY_NAME)}
    for override in [*names.values(), *(override for override in overrides if _key(override) not in names)]:
        apply_override(tree, override)
    return tree


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
        text = path.read_text(encoding="utf-8")
        tree = parse_yaml(text)
        _refuse_duplicates(yaml.compose(text, yaml.SafeLoader), path)
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
        is_run = RunDirectory(path).choices.exists()
        remedy = f"`lockstep train --run {path}` continues this run." if is_run else "Give the path of a .yaml file."
        raise LockstepError(f"{path} is a folder, not a config file.", remedy, code=2) from None
    except UnicodeDecodeError as error:
        raise LockstepError(f"Config file {path} is not UTF-8 text ({error.reason}).", "Save it as UTF-8.", 2) from None
    except (yaml.YAMLError, ValueError) as error:  # a ValueError is a path that no file can have
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "this is not valid YAML"
        remedy = _advise_init(path) or "Correct the YAML there."
        raise LockstepError(f"Config file {path}{where}: {problem}.", remedy, code=2) from None
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        remedy = _advise_init(path) or "Write them as `key: value` lines."
        raise LockstepError(f"Config file {path} has no settings.", remedy, code=2)
    run = RunDirectory(path.parent)
    from_run = path.name == run.config.name and run.choices.exists()
    drop_ignored(tree, from_run)
    if from_run:
        keep_first_behaviour(tree)
    return tree


def _advise_init(path: Path) -> str:
    """Returns what to do with a file that is probably text to train on; empty if it is probably a config."""
    is_config = path.suffix.lower() in ("", ".yaml", ".yml", ".json")
    return "" if is_config else f"If it is text to train on: `lockstep init {path}` writes a config for it."


def keep_first_behaviour(tree: Tree) -> None:
    """Sets data.cleaning and search.normalise in the recorded config of a run of version 0.1.0, which did not have these
    settings."""
    data, search = tree.get("data"), tree.get("search")
    if isinstance(data, dict):
        data.setdefault("cleaning", 1)
    if isinstance(search, dict):
        search.setdefault("normalise", "gnmt")


def _refuse_duplicates(root: yaml.Node | None, path: Path) -> None:
    """Refuses a file that has a setting twice: YAML would silently take the last one."""
    pending, visited = [("", root)], set[int]()
    while pending:
        group, node = pending.pop()
        if not isinstance(node, yaml.MappingNode) or id(node) in visited:  # an alias stands for a group that was seen
            continue
        visited.add(id(node))
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = f"{group}{key.value}", key.start_mark.line + 1
            if name in lines:
                where = f"in line {lines[name]} and in line {line}"
                raise LockstepError(f"Config file {path} has {name} twice: {where}.", "Keep one of them.", code=2)
            lines[name] = line
            pending.append((f"{name}.", value))


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
        if key == "name" or accepts(chosen, key, value) or not any(accepts(one, key, value) for one in classes)
    }


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
        node[last] = parse_yaml(text)
    except yaml.YAMLError:
        node[last] = text
    if key.strip() == MODEL_NAME and node[last] != (before or TransformerSettings().name):
        tree["model"] = {last: node[last]}
    if key.strip() == STRATEGY_NAME and node[last] != (before or AllReduceSettings().name):
        chosen = _strategy_class(node[last])
        tree["strategy"] = node if chosen is None else _drop_foreign(node, chosen)


def build(tree: Mapping[str, object], origin: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Checks the settings. An error names all mistakes; those that are not in an override are blamed on `origin`."""
    _check_texts(tree)
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise explain_mistakes(error.errors(), origin, map(_key, overrides)) from None


def _check_texts(tree: Mapping[str, object]) -> None:
    """Refuses texts that cannot be a path, and those that cannot be written to the run's files."""
    pending: list[tuple[str, object]] = list(tree.items())
    while pending:
        key, value = pending.pop()
        if isinstance(value, bytes):
            raise LockstepError(f"{key} is binary data.", "Write it as text, without !!binary.", code=2)
        for text in (part for part in (key, value) if isinstance(part, str)):
            if character := _UNUSABLE.search(text):
                code = f"U+{ord(character[0]):04X}"
                raise LockstepError(f"{key}: a text has the character {code}.", "Leave it out: no path can have it.", 2)
        if isinstance(value, Mapping):
            pending += [(f"{key}.{name}", inner) for name, inner in value.items()]
        elif isinstance(value, list | tuple | set):
            pending += [(key, inner) for inner in value]
