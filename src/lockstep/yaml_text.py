"""Reads YAML that a person wrote. Whatever is wrong with it is one kind of error."""

from typing import Any

import yaml

MOST_LEVELS = 60
MOST_VALUES = 200_000
"""How deep values may be nested, and how many there may be. Aliases can make a short text very deep and very large."""

MOST_BITS = 64
"""How long a whole number may be. Python refuses to write very long ones."""


def parse_yaml(text: str | bytes) -> Any:
    """Returns the value of a YAML text. Every mistake raises a `yaml.YAMLError`, also those that PyYAML leaves to Python: a
    date that does not exist, a tag that does not fit, values nested too deeply, an alias that contains itself."""
    try:
        value = yaml.safe_load(text)
    except RecursionError:
        raise yaml.MarkedYAMLError(problem="the values are nested too deeply") from None
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError):
        raise yaml.MarkedYAMLError(problem="a value is not what its form or its tag says") from None
    _check_extent(value)
    return value


def _check_extent(value: object) -> None:
    """Refuses a value that is nested too deeply or too large. An alias counts each time that it is used."""
    pending, count = [(value, 1)], 0
    while pending:
        part, level = pending.pop()
        count += 1
        if level > MOST_LEVELS:
            raise yaml.MarkedYAMLError(problem="the values are nested too deeply")
        if count + len(pending) > MOST_VALUES:
            raise yaml.MarkedYAMLError(problem=f"there are more than {MOST_VALUES:,} values")
        if isinstance(part, int) and part.bit_length() > MOST_BITS:
            raise yaml.MarkedYAMLError(problem=f"a whole number has more than {MOST_BITS} bits")
        if isinstance(part, dict):
            pending += [(inner, level + 1) for pair in part.items() for inner in pair]
        elif isinstance(part, list | tuple | set):
            pending += [(inner, level + 1) for inner in part]
