"""LibreTranslate's HTTP interface: what Mastodon, Weblate and other programs ask a translation server."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request

from lockstep.data.text.languages import name_language
from lockstep.serve.api_error import ApiError
from lockstep.serve.api_fields import (
    DetectedLanguage,
    DetectFields,
    FrontendSettings,
    HealthResponse,
    LanguageChoice,
    NamedLanguage,
    ServedLanguage,
    TranslateFields,
    TranslateResponse,
)
from lockstep.serve.api_keys import ApiKeys
from lockstep.serve.describe_requests import describe_detect, describe_errors, describe_translate
from lockstep.serve.detect_language import LanguageGuess, guess_language
from lockstep.serve.limits import Limits
from lockstep.serve.request_fields import read_fields
from lockstep.serve.sentence_parts import split_text
from lockstep.serve.served_models import ServedModels
from lockstep.serve.translate_texts import choose_sources, run_apart, translate_texts

TYPING_PAUSE = 500
"""Milliseconds that clients are told to wait for more typing before they ask for a translation."""


class TranslationApi:
    """The operations of the interface, for some models."""

    def __init__(self, models: ServedModels, limits: Limits, keys: ApiKeys) -> None:
        self._models, self._limits, self._keys = models, limits, keys

    def add_routes(self, app: FastAPI) -> None:
        answered = describe_errors(408, 413)
        asked = describe_errors(400, 403, 408, 413, 415, 429, 500, 504)
        app.add_api_route(
            "/translate",
            self.translate,
            methods=["POST"],
            response_model=TranslateResponse,
            response_model_exclude_unset=True,
            responses=asked,
            openapi_extra=describe_translate(self._models, self._limits),
        )
        app.add_api_route(
            "/detect", self.detect, methods=["POST"], responses=asked, openapi_extra=describe_detect(self._limits)
        )
        app.add_api_route("/languages", self.list_languages, responses=answered)
        app.add_api_route("/health", self.check_health, responses=answered)
        app.add_api_route("/frontend/settings", self.describe_server, responses=answered)

    async def translate(self, request: Request) -> TranslateResponse:
        """Translate a text or a list of texts. JSON and forms are accepted. In HTML only text is translated, and in all
        formats whitespace and line breaks are kept."""
        fields = await read_fields(request, TranslateFields)
        self._keys.check(fields.api_key, request.headers.get("authorization"))
        texts, alternatives, is_html = fields.texts, fields.alternatives or 0, fields.format == "html"
        check_size(texts, alternatives, self._limits)
        target = self._models.find_code(fields.target)
        sources, guesses = await choose_sources(self._models, texts, fields.source, target, is_html)
        results = await translate_texts(self._models, texts, sources, target, is_html, alternatives)
        response: dict[str, list[Any]] = {"translatedText": [result.text for result in results]}
        if alternatives:
            response["alternatives"] = [result.alternatives for result in results]
        if guesses is not None:
            response["detectedLanguage"] = [_describe_guess(guess) for guess in guesses]
        is_list = isinstance(fields.q, list)
        return TranslateResponse(**(response if is_list else {name: values[0] for name, values in response.items()}))

    async def detect(self, request: Request) -> list[DetectedLanguage]:
        """Guess the language of a text. Returns the languages of this server, the most probable first."""
        fields = await read_fields(request, DetectFields)
        self._keys.check(fields.api_key, request.headers.get("authorization"))
        check_size([fields.q], 0, self._limits)
        languages = self._models.languages
        guesses = await run_apart([fields.q], lambda: guess_language(split_text(fields.q, "").sentences, languages))
        return [_describe_guess(guess) for guess in guesses]

    async def list_languages(self) -> list[ServedLanguage]:
        """List the languages of this server and those that each is translated to."""
        models = self._models
        return [
            ServedLanguage(code=code, name=name_language(code), targets=models.list_targets(code))
            for code in models.languages
        ]

    async def check_health(self) -> HealthResponse:
        """Answer if the server works."""
        return HealthResponse(status="ok")

    async def describe_server(self) -> FrontendSettings:
        """List limits and features, for programs with a user interface."""
        source, target = next(iter(self._models.batchers))
        return FrontendSettings(
            apiKeys=bool(self._keys),
            charLimit=self._limits.characters,
            filesTranslation=False,
            frontendTimeout=TYPING_PAUSE,
            keyRequired=bool(self._keys),
            language=LanguageChoice(source=make_named(source), target=make_named(target)),
            suggestions=False,
            supportedFilesFormat=[],
        )


def make_named(code: str) -> NamedLanguage:
    return NamedLanguage(code=code, name=name_language(code))


def check_size(texts: Sequence[str], alternatives: int, limits: Limits) -> None:
    """Raises if a request asks for too much."""
    if len(texts) > limits.texts:
        raise ApiError(400, f"The request has {len(texts):,} texts; at most {limits.texts:,} are allowed.")
    characters = sum(map(len, texts))
    if characters > limits.characters:
        raise ApiError(400, f"The request has {characters:,} characters; at most {limits.characters:,} are allowed.")
    if alternatives > limits.alternatives:
        raise ApiError(400, f"At most {limits.alternatives:,} alternatives are allowed.")


def _describe_guess(guess: LanguageGuess) -> DetectedLanguage:
    return DetectedLanguage(confidence=round(100 * guess.probability, 1), language=guess.language)
