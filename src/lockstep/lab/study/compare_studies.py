"""Two studies side by side: what differs in their settings, and the cells that both have measured."""

from dataclasses import dataclass
from typing import Any

from lockstep.errors import LockstepError
from lockstep.explain.appendix import Table
from lockstep.explain.formatting import count
from lockstep.lab.study.cells import Cell
from lockstep.lab.study.results import Results, StudyRow, find
from lockstep.lab.study.study_file import Study
from lockstep.settings import flat


@dataclass(frozen=True)
class Pair:
    """The same cell in both."""

    first: StudyRow
    second: StudyRow

    @property
    def ratio(self) -> float:
        """How many times as fast the second is."""
        return self.second.sample.words_per_second / self.first.sample.words_per_second

    @property
    def spread(self) -> tuple[float, float]:
        """What the ratio could be if either had been measured in its slowest or fastest round."""
        return self.second.lowest / self.first.highest, self.second.highest / self.first.lowest

    def facts(self) -> dict[str, Any]:
        sides = [self.first.facts(), self.second.facts()]
        return {"cells": [side["cell"] for side in sides], "ratio": self.ratio, "spread": list(self.spread)} | {
            "rows": sides
        }


@dataclass(frozen=True)
class StudyComparison:
    names: tuple[str, str]
    settings: dict[str, tuple[Any, Any]]  # those that differ
    pairs: list[Pair]
    results: tuple[Results, Results]

    def facts(self) -> dict[str, Any]:
        return {
            "studies": list(self.names),
            "settings": {name: list(values) for name, values in self.settings.items()},
            "verdicts": [found.verdict for found in self.results],
            "pairs": [pair.facts() for pair in self.pairs],
        }

    def tables(self) -> list[Table]:
        said = [(name, *(str(value) for value in values)) for name, values in self.settings.items()]
        heads = ("workers, strategy", *self.names, "ratio", "spread", "speed-ups")
        rows = [
            (
                pair.first.cell.label + _batches(pair),
                count(pair.first.sample.words_per_second),
                count(pair.second.sample.words_per_second),
                f"{pair.ratio:.2f}",
                f"{pair.spread[0]:.2f} to {pair.spread[1]:.2f}",
                f"{pair.first.speedup:.2f}, {pair.second.speedup:.2f}",
            )
            for pair in self.pairs
        ]
        title = "Settings that differ" if said else "The settings are the same"
        note = (
            f"{self.results[0].unit.capitalize()} per second; the ratio is the second study's speed over the first's, with "
            f"what slowest and fastest rounds would make it."
        )
        return [Table(title, ("", *self.names), said, words=True), Table("The same cells", heads, rows, note)]


def _batches(pair: Pair) -> str:
    sizes = [pair.first.cell.batch, pair.second.cell.batch]
    return "" if sizes[0] == sizes[1] else f", batch {sizes[0]:,} / {sizes[1]:,}"


def compare(first: Study, second: Study) -> StudyComparison:
    for study in (first, second):
        if not study.finished:
            raise LockstepError(
                f"The study in {study.folder} is not finished.", "The command that began it goes on with it.", code=2
            )
    found = find(first), find(second)
    one_batch = all(len(study.matrix.batches) == 1 for study in (first, second))
    other = {_name(row.cell, one_batch): row for row in found[1].rows}
    pairs = [Pair(row, other[key]) for row in found[0].rows if (key := _name(row.cell, one_batch)) in other]
    before, after = flat(first.settings), flat(second.settings)
    settings = {
        name: (before.get(name), after.get(name)) for name in {**before, **after} if before.get(name) != after.get(name)
    }
    return StudyComparison((_folder(first), _folder(second)), settings, pairs, found)


def _folder(study: Study) -> str:
    return study.folder.resolve().name


def _name(cell: Cell, one_batch: bool) -> tuple[object, ...]:
    """What makes two cells the same. Where each study has one batch only, its size is a setting like others."""
    return (cell.workers, cell.strategy, cell.link, cell.without, None if one_batch else cell.batch)
