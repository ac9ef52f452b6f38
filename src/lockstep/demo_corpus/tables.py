"""Reads the vocabulary tables and draws items from them."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
Pair = tuple[str, str]
"""The same words in English and in German."""

Draw = Callable[[], float]
"""A source of random numbers in [0, 1); every choice of the grammar comes from it."""


def read_cells(table: str) -> tuple[str, ...]:
    """Returns all words of a table, whose lines have no meaning."""
    return tuple(table.split())


def read_rows(table: str) -> list[list[str]]:
    """Splits the lines of a table into columns at two or more spaces."""
    return [re.split(r"\s{2,}", line.strip()) for line in table.strip().splitlines()]


def read_pairs(table: str) -> tuple[Pair, ...]:
    """Reads a table of two columns."""
    return tuple((english, german) for english, german in read_rows(table))


def add_spaces(items: Iterable[Pair]) -> tuple[Pair, ...]:
    """Adds the space that separates an adverbial from the words before it."""
    return tuple((f" {english}", f" {german}") for english, german in items)


def pick(draw: Draw, items: Sequence[T]) -> T:
    """Draws one item uniformly."""
    return items[int(draw() * len(items))]
