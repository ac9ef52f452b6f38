"""Reads parts of JSON values whose shape is not certain: what is missing or of another type reads as empty."""

from collections.abc import Iterable

from pydantic import JsonValue


def get_dict(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def list_dicts(value: JsonValue) -> list[dict[str, JsonValue]]:
    """Returns the objects of a JSON array and leaves out everything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def list_numbers(values: Iterable[JsonValue]) -> list[float]:
    """Returns the numbers among the values. A bool is not a number."""
    return [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]


def get_number(value: JsonValue) -> float | None:
    """Returns an int as an int, so that it is written as one again."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
