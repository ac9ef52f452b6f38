"""Calls the programs of the platforms: sbatch, kubectl, sky, gcloud."""

import shutil
import subprocess
from collections.abc import Sequence

from lockstep.errors import LockstepError
from lockstep.run import environment_variables

TIMEOUT_SECONDS = 300.0
MOST_CHARACTERS = 600
"""Of an error message."""


def require_program(name: str) -> None:
    """Raises the error that names --print if a program is not installed."""
    if shutil.which(name) is None:
        raise LockstepError(
            f"{name} is not installed on this machine.",
            f"Install it, or add --print and hand the text to {name} where it is.",
            code=2,
        )


def call(words: Sequence[str], text: str = "", secret: str | None = None) -> str:
    """Runs a program with a text on its standard input, and returns what it prints. The secret of a job is given to it as
    the variable LOCKSTEP_SECRET: a command line would show it to everybody."""
    require_program(words[0])
    environment = environment_variables.copy_without_secret()
    if secret is not None:
        environment["LOCKSTEP_SECRET"] = secret
    try:
        result = subprocess.run(
            words, input=text, capture_output=True, text=True, env=environment, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise LockstepError(f"{words[0]} did not answer within {TIMEOUT_SECONDS:.0f} s.", "Try again later.") from None
    if result.returncode:
        message = (result.stderr.strip() or result.stdout.strip())[-MOST_CHARACTERS:]
        remedy = "Correct what it names; --print shows the text that it got."
        raise LockstepError(f"`{words[0]} {words[1]}` ended with code {result.returncode}: {message}", remedy)
    return result.stdout


def ask(words: Sequence[str]) -> str | None:
    """Returns what a program answers; None if it is not there or knows nothing."""
    try:
        return call(words)
    except LockstepError:
        return None
