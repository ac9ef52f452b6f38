"""What one request may ask of the server."""

from dataclasses import dataclass

BYTES_PER_CHARACTER = 12
"""The most that a character takes in a body: two `\\uXXXX` in JSON, four `%XX` in a form."""
OTHER_BYTES = 64 << 10
"""Names of fields, keys and the other parts of a body."""


@dataclass(frozen=True)
class Limits:
    """The most that a request may have, and how long it may take."""

    characters: int = 20_000
    texts: int = 256
    alternatives: int = 5
    queue: int = 2048
    """Sentences that wait for one model."""
    seconds: float = 60.0
    """Time to answer a request that has arrived."""
    body_seconds: float = 10.0
    """Time for the client to send a request."""

    @property
    def body_bytes(self) -> int:
        return BYTES_PER_CHARACTER * self.characters + OTHER_BYTES
