"""Translates the texts of one request: languages, sentences, decoding, and the texts put together again."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lockstep.serve.api_error import ApiError
from lockstep.serve.batcher import Batcher
from lockstep.serve.detect_language import LanguageGuess, guess_language
from lockstep.serve.html_parts import escape_text, split_html
from lockstep.serve.sentence_parts import TextParts, split_text
from lockstep.serve.served_models import AUTO, ServedModels

SHORT_TEXT = 40
"""The language of texts with fewer characters is guessed from all texts of the request together."""
LONG_TEXT = 2000
"""Texts with more characters are split in another thread, so that other requests need not wait."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class TranslatedText:
    """A translation and other possible ones."""

    text: str
    alternatives: list[str]


async def translate_texts(
    models: ServedModels, texts: Sequence[str], sources: Sequence[str], target: str, is_html: bool, alternatives: int
) -> list[TranslatedText]:
    """Returns the translations in the order of the texts; each has its source language. Texts that are in the target
    language already stay as they are."""
    results: dict[int, TranslatedText] = {}
    for source in dict.fromkeys(sources):
        places = [place for place, own in enumerate(sources) if own == source]
        own_texts = [texts[place] for place in places]
        if source == target:
            done = [TranslatedText(text, []) for text in own_texts]
        else:
            done = await _translate(models.get(source, target), own_texts, is_html, alternatives)
        results |= zip(places, done, strict=True)
    return [results[place] for place in range(len(texts))]


async def _translate(batcher: Batcher, texts: Sequence[str], is_html: bool, alternatives: int) -> list[TranslatedText]:
    """Translates texts of one language."""
    source, target = batcher.translator.languages
    parts = await run_apart(texts, lambda: _split(texts, source, is_html))
    sentences = [sentence for part in parts for sentence in part.sentences]
    lines = iter(await batcher.translate(sentences, n_best=alternatives + 1))
    encode = escape_text if is_html else str
    results = []
    for part in parts:
        candidates = [next(lines).candidates for _ in part.sentences]
        versions = [
            part.join([own[min(rank, len(own) - 1)].text for own in candidates], target, encode)
            for rank in range(max(map(len, candidates), default=1))
        ]
        best, *others = dict.fromkeys(versions)
        results.append(TranslatedText(best, others))
    return results


def _split(texts: Sequence[str], language: str, is_html: bool) -> list[TextParts]:
    return [split_html(text, language) if is_html else split_text(text, language) for text in texts]


async def choose_sources(
    models: ServedModels, texts: Sequence[str], source: str, target: str, is_html: bool
) -> tuple[list[str], list[LanguageGuess] | None]:
    """Returns the source language of every text, and the guesses if `source` is "auto". Raises if this server does not
    translate from there to the target."""
    if source != AUTO:
        code = models.find_code(source)
        if code != target:
            models.get(code, target)
        return [code] * len(texts), None
    sources = models.list_sources(target)
    if not sources:
        raise ApiError(400, f"This server does not translate to {target}: see /languages.")
    guesses = await run_apart(texts, lambda: _guess_each(texts, [*sources, target], is_html))
    return [guess.language for guess in guesses], guesses


def _guess_each(texts: Sequence[str], languages: Sequence[str], is_html: bool) -> list[LanguageGuess]:
    def guess(parts: Sequence[TextParts]) -> LanguageGuess:
        return guess_language([sentence for part in parts for sentence in part.sentences], languages)[0]

    def is_short(part: TextParts) -> bool:
        return sum(map(len, part.sentences)) < SHORT_TEXT

    every = _split(texts, "", is_html)
    joint = guess(every) if any(map(is_short, every)) else None
    return [joint if joint is not None and is_short(part) else guess([part]) for part in every]


async def run_apart(texts: Sequence[str], work: Callable[[], Result]) -> Result:
    """Calls `work`; in another thread if the texts are long."""
    return await asyncio.to_thread(work) if sum(map(len, texts)) > LONG_TEXT else work()
