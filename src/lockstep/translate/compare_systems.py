"""Says whether the scores of two systems differ by more than chance."""

from dataclasses import dataclass

SIGNIFICANT = 0.05
"""A difference is called significant below this p-value."""


@dataclass(frozen=True)
class ScoreDifference:
    """How a score of the second system differs from that of the first, and the p-value of the paired test."""

    key: str
    title: str
    value: float
    p_value: float | None  # None: not tested

    @property
    def is_significant(self) -> bool:
        """Equal scores never differ, although sacreBLEU gives identical translations the lowest possible p-value."""
        return self.value != 0.0 and self.p_value is not None and self.p_value < SIGNIFICANT

    def describe(self) -> str:
        """Returns a sentence for people."""
        unit = self.title.removeprefix("sacre")
        if self.value == 0.0:
            return f"Both have the same {unit}."
        what = f"The difference of {abs(self.value):.2f} {unit}"
        if self.p_value is None:
            return f"{what} was not tested."
        if not self.is_significant:
            return f"{what} is not significant ({format_p_value(self.p_value)})."
        higher = "second" if self.value > 0 else "first"
        return f"{what} is significant ({format_p_value(self.p_value)}): the {higher} model scores higher."


def format_p_value(p_value: float) -> str:
    """Formats a p-value: `p = 0.013`, and `p < 0.001` below."""
    return f"p = {p_value:.3f}" if p_value >= 0.0005 else "p < 0.001"
