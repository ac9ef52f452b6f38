"""The explanation of a published run: paragraphs and tables, as Markdown."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from pydantic import JsonValue


@dataclass(frozen=True)
class Section:
    """A table, with text before and after it."""

    title: str
    before: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    after: str = ""


@dataclass(frozen=True)
class Explanation:
    """Sections under a title and an introduction."""

    title: str
    begin: str
    sections: list[Section] = field(default_factory=list)

    def as_dict(self) -> dict[str, JsonValue]:
        return asdict(self)

    def text(self) -> str:
        """The explanation as Markdown."""
        blocks = [f"## {self.title}", self.begin]
        for section in self.sections:
            head = [_join_cells(section.heads), _join_cells(["---"] * len(section.heads))]
            blocks += [f"### {section.title}", section.before, "\n".join([*head, *map(_join_cells, section.rows)])]
            blocks += [section.after] * bool(section.after)
        return "\n\n".join(blocks) + "\n"


def _join_cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
