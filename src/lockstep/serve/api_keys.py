"""The keys that clients need where a server is reachable from other machines."""

import hmac
from hashlib import sha256
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.serve.api_error import ApiError

BEARER = "bearer "


class ApiKeys:
    """The keys that are accepted. Without any, every request is. Only their digests are stored."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [sha256(key.encode()).digest() for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def check(self, key: str | None, authorization: str | None) -> None:
        """Raises unless the field `api_key` or the header `Authorization: Bearer KEY` has an accepted key.

        It compares with all keys, each in constant time, so that the time it takes tells nothing about them.
        """
        if not self._digests:
            return
        if not key and authorization is not None and authorization[: len(BEARER)].lower() == BEARER:
            key = authorization[len(BEARER) :].strip()
        if not key:
            raise ApiError(403, "This server needs an API key: send it as api_key, or as Authorization: Bearer KEY.")
        given = sha256(key.encode()).digest()
        if not sum(hmac.compare_digest(given, digest) for digest in self._digests):
            raise ApiError(403, "The API key is not valid.")


def read_keys(path: Path) -> ApiKeys:
    """Reads a file with one key per line. Empty lines and lines that begin with # are ignored."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise LockstepError(f"{path} cannot be read: {error.strerror}.", "Check the path.", code=2) from None
    except UnicodeDecodeError:
        raise LockstepError(f"{path} is not UTF-8 text.", "Write one key per line.", code=2) from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise LockstepError(f"{path} has no key.", "Write one key per line.", code=2)
    return ApiKeys(keys)
