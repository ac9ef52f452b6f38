"""A rich console for text that others wrote."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from lockstep.terminal_text import strip_controls


class SafeConsole(Console):
    """Prints as rich does, but only rich's own control sequences reach the terminal, none from the text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else strip_controls(text), style, control)
