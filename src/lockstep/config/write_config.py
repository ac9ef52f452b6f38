"""Writes a commented config file for a text and the sizes that suit it."""

from collections.abc import Sequence

from pydantic import JsonValue

from lockstep.config.setting_facts import as_yaml
from lockstep.config.sizes import Size, Sizes


def write_config(head: Sequence[str], data: Sequence[Size], sizes: Sizes) -> str:
    """The text of a config file: comment lines, the settings of the data, then the sizes. Reasons become comments."""
    lines = [f"# {line}".rstrip() for line in head]
    groups: list[str] = []
    for size in (*data, *sorted(sizes.settings, key=lambda size: not size.key.startswith("data."))):
        *path, name = size.key.split(".")
        shared = next((i for i, (old, new) in enumerate(zip(groups, path, strict=False)) if old != new), None)
        common = min(len(groups), len(path)) if shared is None else shared
        lines += [f"{'  ' * depth}{path[depth]}:" for depth in range(common, len(path))]
        groups = path
        lines.append(_write_setting("  " * len(path), name, size.value, size.reason))
    return "\n".join(lines) + "\n"


def _write_setting(indent: str, name: str, value: JsonValue, reason: str) -> str:
    setting = f"{indent}{name}: {as_yaml_text(value)}"
    return f"{setting:<28} # {reason}" if reason else setting


def as_yaml_text(value: JsonValue) -> str:
    """A value in one line of YAML. Text is quoted where it would be read as something else."""
    return as_yaml([value])[1:-1]
