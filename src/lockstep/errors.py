"""The one exception for everything a user can put right."""


class LockstepError(Exception):
    """What went wrong in one sentence, and what to do about it in another.

    It is raised where the fact is known and printed in one place, without a traceback. `code` is the exit code: 1 for
    something that happened, 2 for something that was asked for wrongly.
    """

    def __init__(self, message: str, remedy: str = "", code: int = 1) -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.message = message
        self.remedy = remedy
        self.code = code

    def __reduce__(self) -> tuple[type["LockstepError"], tuple[str, str, int]]:
        """Crosses from one process to another with all its parts."""
        return type(self), (self.message, self.remedy, self.code)


class PortTaken(LockstepError):
    """Another program took a port between its choice and its use; nothing has begun yet."""


def missing(what: str, package: str, extra: str) -> LockstepError:
    """Something needs a package that only an extra of the installation brings."""
    return LockstepError(
        f"{what} needs {package}, which is not installed.", f"pip install 'lockstep-train[{extra}]'", code=2
    )
