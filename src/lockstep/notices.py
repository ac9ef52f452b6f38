"""Sentences on stderr for the person who runs a command. Outside `cli/`, no other module prints there."""

import sys
from typing import TextIO

from lockstep.errors import LockstepError
from lockstep.terminal_text import strip_controls

_terminal: TextIO | None = None


def terminal() -> TextIO:
    """Returns the stream that a person reads: stderr, or what it was before `stderr_log` redirected it."""
    return sys.stderr if _terminal is None else _terminal


def set_terminal(stream: TextIO | None) -> None:
    global _terminal
    _terminal = stream


def print_error(error: LockstepError) -> None:
    """Prints what went wrong and, on a separate line, what to do about it."""
    warn(f"Error: {error.message}")
    if error.remedy:
        warn(f"       {error.remedy}")


def warn(sentence: str) -> None:
    """Prints a sentence, without the control characters that a name or a text in it may contain."""
    print(strip_controls(sentence), file=terminal())
