"""A rich console for text that others wrote."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, HighlighterType, JustifyMethod, OverflowMethod, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from lockstep.terminal_text import strip_controls


class SafeConsole(Console):
    """Prints as rich does, but only rich's own control sequences reach the terminal, none from the text. Strings are shown
    as they are, brackets and colons included: rich's markup is read only where a call asks for it."""

    def render_str(
        self,
        text: str,
        *,
        style: str | Style = "",
        justify: JustifyMethod | None = None,
        overflow: OverflowMethod | None = None,
        emoji: bool | None = None,
        markup: bool | None = None,
        highlight: bool | None = None,
        highlighter: HighlighterType | None = None,
    ) -> Text:
        return super().render_str(
            text,
            style=style,
            justify=justify,
            overflow=overflow,
            emoji=bool(emoji),
            markup=bool(markup),
            highlight=highlight,
            highlighter=highlighter,
        )

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else strip_controls(text), style, control)
