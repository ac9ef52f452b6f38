"""The models of a server, by the languages that they translate between."""

from lockstep.data.text.languages import matches_language, name_language
from lockstep.errors import LockstepError
from lockstep.serve.api_error import ApiError
from lockstep.serve.batcher import Batcher, LineTranslator

AUTO = "auto"
"""The source language of requests that leave it to the server."""


class ServedModels:
    """One batcher for each direction."""

    def __init__(self, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._places: dict[tuple[str, str], str] = {}
        self.batchers: dict[tuple[str, str], Batcher] = {}

    def add(self, translator: LineTranslator, place: str) -> None:
        """Starts the decoding thread of a model. `place` is what the user calls it."""
        direction = translator.languages
        if not all(direction):
            raise LockstepError(f"{place} does not say its languages.", "Train it again with this version.", code=2)
        if direction in self._places:
            name = "-".join(direction)
            raise LockstepError(
                f"{self._places[direction]} and {place} both translate {name}.",
                "Name one model for each direction.",
                code=2,
            )
        self._places[direction] = place
        self.batchers[direction] = Batcher(translator, self._most_waiting)

    def close(self) -> None:
        for batcher in self.batchers.values():
            batcher.close()

    @property
    def languages(self) -> list[str]:
        """All languages, in the order of their names."""
        return sorted({code for direction in self.batchers for code in direction}, key=name_language)

    def list_targets(self, source: str) -> list[str]:
        return sorted((to for origin, to in self.batchers if origin == source), key=name_language)

    def list_sources(self, target: str) -> list[str]:
        return sorted((origin for origin, to in self.batchers if to == target), key=name_language)

    def find_code(self, code: str) -> str:
        """Returns the served language that a client's code means: `en` for en, EN and en-US."""
        same = [own for own in self.languages if own.lower() == code.lower()]
        similar = [own for own in self.languages if matches_language(own, code) or matches_language(code, own)]
        if not same and not similar:
            raise ApiError(400, f"This server does not know the language {code[:20]!r}: see /languages.")
        return (same or similar)[0]

    def get(self, source: str, target: str) -> Batcher:
        """Returns the batcher of a direction; both are served languages."""
        if (source, target) not in self.batchers:
            raise ApiError(400, f"This server does not translate from {source} to {target}: see /languages.")
        return self.batchers[source, target]
