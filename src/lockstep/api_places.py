"""The paths and addresses that the functions of the Python interface take."""

import os
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.remote.place import is_remote

Place = str | os.PathLike[str]
"""A path, or the address of a run on an object store."""


def name_place(place: object, call: str) -> str:
    """Returns a path or an address as text; a path with the home folder instead of `~`. Raises a sentence, with an example
    of the `call`, for anything else."""
    if not isinstance(place, str | os.PathLike) or not str(place):
        what = "an empty text" if place == "" else repr(place)
        raise LockstepError(f"lockstep.{call} takes the path of a folder, not {what}.", _show_example(call), code=2)
    return str(place) if is_remote(place) else str(Path(place).expanduser())


def _show_example(call: str) -> str:
    return f'For example: lockstep.{call}("{"runs" if call == "runs" else "runs/demo"}")'
