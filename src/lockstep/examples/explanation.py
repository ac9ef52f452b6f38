"""What the planner says of runs that others have made: paragraphs and tables, as Markdown."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Section:
    """A table with a sentence before and one after."""

    title: str
    before: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    after: str = ""


@dataclass(frozen=True)
class Explanation:
    title: str
    begin: str
    sections: list[Section] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        blocks = [f"## {self.title}", self.begin]
        for section in self.sections:
            head = [_line(section.heads), _line(["---"] * len(section.heads))]
            blocks += [f"### {section.title}", section.before, "\n".join([*head, *map(_line, section.rows)])]
            blocks += [section.after] * bool(section.after)
        return "\n\n".join(blocks) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
