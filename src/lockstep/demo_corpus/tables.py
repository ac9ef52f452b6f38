"""How the vocabulary tables are read and how one thing is drawn from many."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
Pair = tuple[str, str]
"""The same thing in English and in German."""

Draw = Callable[[], float]
"""A source of random numbers in [0, 1); every choice of the grammar comes from it."""


def cells(table: str) -> tuple[str, ...]:
    """The words of a table that is laid out for the eye only."""
    return tuple(table.split())


def rows(table: str) -> list[list[str]]:
    """The lines of a table, split into columns at two or more spaces."""
    return [re.split(r"\s{2,}", line.strip()) for line in table.strip().splitlines()]


def pairs(table: str) -> tuple[Pair, ...]:
    """A table of two columns."""
    return tuple((english, german) for english, german in rows(table))


def spaced(items: Iterable[Pair]) -> tuple[Pair, ...]:
    """With the space that separates an adverbial from what stands before it."""
    return tuple((f" {english}", f" {german}") for english, german in items)


def pick(draw: Draw, items: Sequence[T]) -> T:
    """One item, uniformly."""
    return items[int(draw() * len(items))]
