"""The exception for requests that are refused, and its response."""

from collections.abc import Mapping

from fastapi.responses import JSONResponse


class ApiError(Exception):
    """A status code and a sentence for the client. The sentence never contains a key or text to translate."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = headers

    def to_response(self) -> JSONResponse:
        return JSONResponse({"error": self.sentence}, self.status, self.headers)
