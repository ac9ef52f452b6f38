"""Sentences on stderr for the person who runs a command. Outside `cli/`, no other module prints there."""

import sys

from lockstep.errors import LockstepError


def print_error(error: LockstepError) -> None:
    """Prints what went wrong and, on a separate line, what to do about it."""
    print(f"Error: {error.message}", file=sys.stderr)
    if error.remedy:
        print(f"       {error.remedy}", file=sys.stderr)


def warn(sentence: str) -> None:
    print(sentence, file=sys.stderr)
