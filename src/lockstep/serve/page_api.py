"""The page for a browser, and the request with which it asks for translations, alternatives and word alignment."""

import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.responses import Response

from lockstep import __version__
from lockstep.data.text.languages import uses_spaces
from lockstep.serve.api_fields import (
    PageAlternative,
    PageDirection,
    PageFields,
    PageResponse,
    PageSentence,
    PageSettings,
    PageWords,
)
from lockstep.serve.api_keys import ApiKeys
from lockstep.serve.describe_requests import describe_errors, describe_page_request
from lockstep.serve.limits import Limits
from lockstep.serve.request_fields import read_fields
from lockstep.serve.sentence_parts import TextParts, split_text
from lockstep.serve.served_models import ServedModels
from lockstep.serve.translate_texts import run_apart
from lockstep.serve.translation_api import check_size, make_named
from lockstep.serve.word_alignment import align_words
from lockstep.translate.translator import TranslatedLine

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGES = {
    "/": ("index.html", "text/html"),
    "/docs": ("docs.html", "text/html"),
    "/page/style.css": ("style.css", "text/css"),
    "/page/translate.js": ("translate.js", "text/javascript"),
    "/page/alignment.js": ("alignment.js", "text/javascript"),
    "/page/choices.js": ("choices.js", "text/javascript"),
    "/page/server.js": ("server.js", "text/javascript"),
    "/page/docs.js": ("docs.js", "text/javascript"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""Every file that is served, by its path."""


class PageApi:
    """The files of the page, and the operations that it uses."""

    def __init__(self, models: ServedModels, limits: Limits, keys: ApiKeys) -> None:
        self._models, self._limits, self._keys = models, limits, keys

    def add_routes(self, app: FastAPI) -> None:
        for path, (name, media_type) in PAGES.items():
            app.add_route(path, _make_endpoint(name, media_type), include_in_schema=False)
        app.add_api_route("/page/settings", self.describe_page, responses=describe_errors(408, 413))
        app.add_api_route(
            "/page/translate",
            self.translate,
            methods=["POST"],
            responses=describe_errors(400, 403, 408, 413, 415, 429, 500, 504),
            openapi_extra=describe_page_request(self._models, self._limits),
        )

    async def describe_page(self) -> PageSettings:
        """List directions and limits, for the page."""
        directions = [
            PageDirection(
                source=make_named(source), target=make_named(target), has_alignment=batcher.translator.can_attend
            )
            for (source, target), batcher in self._models.batchers.items()
        ]
        return PageSettings(
            version=__version__,
            directions=directions,
            characters=self._limits.characters,
            alternatives=self._limits.alternatives,
            is_key_required=bool(self._keys),
        )

    async def translate(self, request: Request) -> PageResponse:
        """Translate a text and return its sentences, with alternatives and the alignment of words."""
        begin = time.perf_counter()
        fields = await read_fields(request, PageFields)
        self._keys.check(fields.api_key, request.headers.get("authorization"))
        check_size([fields.text], fields.alternatives, self._limits)
        find = self._models.find_code
        batcher = self._models.get(find(fields.source), find(fields.target))
        languages = batcher.translator.languages
        parts = await run_apart([fields.text], lambda: split_text(fields.text, languages[0]))
        lines = await batcher.translate(
            parts.sentences, n_best=fields.alternatives + 1, with_attention=batcher.translator.can_attend
        )
        return await run_apart([fields.text], lambda: _describe(parts, lines, languages, begin))


def _describe(
    parts: TextParts, lines: Sequence[TranslatedLine], languages: tuple[str, str], begin: float
) -> PageResponse:
    sentences = [
        _describe_sentence(before, source, line, languages)
        for before, source, line in zip(parts.gaps, parts.sentences, lines, strict=False)  # one gap is left
    ]
    pieces = sum(line.pieces for line in lines)
    words = sum(len(line.text.split()) for line in lines) if uses_spaces(languages[1]) else pieces
    return PageResponse(
        sentences=sentences,
        after=parts.gaps[-1],
        milliseconds=round(1000 * (time.perf_counter() - begin), 1),
        words=words,
        pieces=pieces,
    )


def _describe_sentence(before: str, source: str, line: TranslatedLine, languages: tuple[str, str]) -> PageSentence:
    text = line.text.strip()
    words = None
    if line.attention:
        alignment = align_words(source, text, line.attention, languages)
        links = [(link.target, link.source, link.weight) for link in alignment.links]
        words = PageWords(source=alignment.source, target=alignment.target, links=links)
    others = {one.text.strip(): one.score for one in line.candidates[1:] if one.text.strip() != text}
    return PageSentence(
        before=before,
        source=source,
        translation=text,
        score=round(line.candidates[0].score, 4),
        alternatives=[PageAlternative(text=other, score=round(score, 4)) for other, score in others.items()],
        words=words,
    )


def _make_endpoint(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    """Returns the function that answers with a file of the page. It is read once."""
    content = files("lockstep.serve").joinpath("page", name).read_bytes()
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}

    async def answer(request: Request) -> Response:
        return Response(content, media_type=media_type, headers=headers)

    return answer
