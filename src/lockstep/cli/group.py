"""A group of commands of which one needs not be named."""

from typing import Any

from typer.core import TyperGroup


class DefaultGroup(TyperGroup):
    """What is no command's name goes to the command `default`."""

    default: str
    helps = True  # does the group explain itself when asked for help? Else the command does

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        asked = bool(args) and args[0] in ctx.help_option_names and self.helps
        if not asked and (not args or args[0] not in self.commands):
            args = [self.default, *args]
        return super().parse_args(ctx, args)
