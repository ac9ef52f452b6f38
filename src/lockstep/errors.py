"""The exception for every error that a user can correct."""

from importlib.util import find_spec


class LockstepError(Exception):
    """A sentence that says what went wrong, and another one that says what to do about it.

    The command prints both without a traceback. `code` is the exit code: 2 if the command or its settings are wrong, 1 if
    something failed while it ran.
    """

    def __init__(self, message: str, remedy: str = "", code: int = 1) -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.message = message
        self.remedy = remedy
        self.code = code

    def __reduce__(self) -> tuple[type["LockstepError"], tuple[str, str, int]]:
        """Pickles all three parts, for errors that are sent from one process to another."""
        return type(self), (self.message, self.remedy, self.code)


class Unreachable(LockstepError):
    """The first worker of a launch cannot be reached. On one machine it has died: another launch may succeed."""


class PortTaken(LockstepError):
    """Another program took a port after it was chosen and before it was used. Nothing has started, so a retry is safe."""


def missing(what: str, package: str, extra: str) -> LockstepError:
    """The error for a feature whose package is installed only with an extra, such as `lockstep-train[EXTRA]`."""
    return LockstepError(
        f"{what} needs {package}, which is not installed.", f"Install it: pip install 'lockstep-train[{extra}]'", code=2
    )


def require(what: str, package: str, extra: str) -> None:
    """Raises the error of `missing` if a package is not installed. It is not imported, which may take a second."""
    try:
        is_installed = find_spec(package) is not None
    except ValueError:  # something has replaced it
        is_installed = False
    if not is_installed:
        raise missing(what, package, extra)
