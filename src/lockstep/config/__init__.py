"""The configuration of a run: one tree of settings, from a YAML file and `key=value` overrides."""

from lockstep.config.config_file import (
    STRATEGY_0_1_0,
    Tree,
    apply_override,
    build,
    drop_ignored,
    keep_first_behaviour,
    load,
    read_tree,
    read_yaml,
    strategy_has,
    strategy_setting,
)
from lockstep.config.mistakes import find_nearest
from lockstep.config.run_config import VARIANTS, RunConfig, differences, list_fields
from lockstep.config.setting_facts import SectionFacts, SettingFacts, as_yaml, describe, display_as_type, list_sections

__all__ = [
    "STRATEGY_0_1_0",
    "VARIANTS",
    "RunConfig",
    "SectionFacts",
    "SettingFacts",
    "Tree",
    "apply_override",
    "as_yaml",
    "build",
    "describe",
    "differences",
    "display_as_type",
    "drop_ignored",
    "find_nearest",
    "keep_first_behaviour",
    "list_fields",
    "list_sections",
    "load",
    "read_tree",
    "read_yaml",
    "strategy_has",
    "strategy_setting",
]
