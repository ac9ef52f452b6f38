"""Compares two studies: the settings that differ, and the speed of the cells that both have measured."""

from dataclasses import dataclass

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from lockstep.errors import LockstepError
from lockstep.explain.appendix import Table
from lockstep.explain.formatting import count
from lockstep.lab.study.cells import Cell
from lockstep.lab.study.results import Results, StudyRow, analyse
from lockstep.lab.study.study_file import Study
from lockstep.settings import flat


@dataclass(frozen=True)
class Pair:
    """The rows of the same cell in both studies."""

    first: StudyRow
    second: StudyRow

    @property
    def ratio(self) -> float:
        """How many times as fast the second is."""
        return self.second.sample.words_per_second / self.first.sample.words_per_second

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest ratio between any two rounds."""
        return self.second.lowest / self.first.highest, self.second.highest / self.first.lowest

    def as_dict(self) -> dict[str, JsonValue]:
        rows = [self.first.as_dict(), self.second.as_dict()]
        return {
            "cells": [row["cell"] for row in rows],
            "ratio": self.ratio,
            "spread": [*self.spread],
            "rows": [*rows],
        }


@dataclass(frozen=True)
class StudyComparison:
    """Two studies side by side."""

    names: tuple[str, str]
    settings: dict[str, tuple[JsonValue, JsonValue]]  # those that differ
    pairs: list[Pair]
    results: tuple[Results, Results]

    def as_dict(self) -> dict[str, JsonValue]:
        return {
            "studies": [*self.names],
            "settings": {name: [*values] for name, values in self.settings.items()},
            "verdicts": [[*results.verdict] for results in self.results],
            "pairs": [pair.as_dict() for pair in self.pairs],
        }

    def make_tables(self) -> list[Table]:
        settings = [(name, *(str(value) for value in values)) for name, values in self.settings.items()]
        heads = ("workers, strategy", *self.names, "ratio", "spread", "speed-ups")
        rows = [
            (
                pair.first.cell.label + _describe_batches(pair),
                count(pair.first.sample.words_per_second),
                count(pair.second.sample.words_per_second),
                f"{pair.ratio:.2f}",
                f"{pair.spread[0]:.2f} to {pair.spread[1]:.2f}",
                f"{pair.first.speedup:.2f}, {pair.second.speedup:.2f}",
            )
            for pair in self.pairs
        ]
        title = "Settings that differ" if settings else "The settings are the same"
        note = (
            f"{self.results[0].unit.capitalize()} per second. The ratio is the speed of the second study divided by "
            "that of the first; its spread is the lowest and the highest ratio between any two rounds."
        )
        return [Table(title, ("", *self.names), settings, words=True), Table("The same cells", heads, rows, note)]


def _describe_batches(pair: Pair) -> str:
    sizes = [pair.first.cell.batch, pair.second.cell.batch]
    return "" if sizes[0] == sizes[1] else f", batch {sizes[0]:,} / {sizes[1]:,}"


def compare(first: Study, second: Study) -> StudyComparison:
    for study in (first, second):
        if not study.finished:
            raise LockstepError(
                f"The study in {study.folder} is not finished.", "Continue it with the command that began it.", code=2
            )
    results = analyse(first), analyse(second)
    one_batch = all(len(study.matrix.batches) == 1 for study in (first, second))
    rows = {_make_key(row.cell, one_batch): row for row in results[1].rows}
    pairs = [Pair(row, rows[key]) for row in results[0].rows if (key := _make_key(row.cell, one_batch)) in rows]
    before, after = flat(to_jsonable_python(first.settings)), flat(to_jsonable_python(second.settings))
    settings = {
        name: (before.get(name), after.get(name)) for name in {**before, **after} if before.get(name) != after.get(name)
    }
    names = first.folder.resolve().name, second.folder.resolve().name
    return StudyComparison(names, settings, pairs, results)


def _make_key(cell: Cell, one_batch: bool) -> tuple[int, str, str, str, int | None]:
    """Returns what makes two cells the same. If each study has only one batch, its size may differ."""
    return (cell.workers, cell.strategy, cell.link, cell.without, None if one_batch else cell.batch)
