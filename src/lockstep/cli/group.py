"""A group of commands with a default command."""

from typing import Any

from typer.core import TyperGroup


class DefaultGroup(TyperGroup):
    """Runs the command `default` if the first word is not the name of a command."""

    default: str
    shows_group_help = True
    """Does --help show the group? Otherwise it shows the default command."""

    # typer has its own copy of click, whose Context is not public.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        shows_help = bool(args) and args[0] in ctx.help_option_names and self.shows_group_help
        if not shows_help and (not args or args[0] not in self.commands):
            args = [self.default, *args]
        return super().parse_args(ctx, args)
