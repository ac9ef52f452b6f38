"""Guesses which of the served languages a text is in."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lockstep.data.text import identify

READ_SENTENCES = 64
"""The beginning of a long text is enough."""


@dataclass(frozen=True)
class LanguageGuess:
    """A language and the probability, from 0 to 1, that a text is in it rather than in another common language."""

    language: str
    probability: float


def guess_language(sentences: Sequence[str], languages: Sequence[str]) -> list[LanguageGuess]:
    """Returns the languages, the most probable first. Languages that the identifier does not know have probability 0."""
    texts = [_prepare(text) for text in sentences[:READ_SENTENCES] if text.strip()]
    names = {code: identify.known_language(code) for code in languages}
    known = {name for name in names.values() if name is not None}
    if not texts or not known:
        return [LanguageGuess(code, 0.0) for code in languages]
    columns = sorted(known.union(identify.COMMON))
    evidence = _weigh(texts, columns)
    shares = np.exp(evidence - evidence.max())
    shares /= shares.sum()
    ranks = {name: (evidence[place], shares[place]) for place, name in enumerate(columns)}
    fits = [(*ranks.get(names[code] or "", (-np.inf, 0.0)), code) for code in languages]
    return [LanguageGuess(code, float(share)) for _, share, code in sorted(fits, key=lambda fit: fit[0], reverse=True)]


def _weigh(texts: list[bytes], columns: list[str]) -> npt.NDArray[np.float64]:
    """Returns the log-probability of all texts in each language, up to a constant."""
    lengths = np.array([len(text) for text in texts])
    ends = np.cumsum(lengths)
    sentences = identify.Sentences(np.frombuffer(b"".join(texts), np.uint8), ends - lengths, ends)
    scores = identify.score(sentences, columns)  # [texts, columns], divided by the root of the length
    weighed: npt.NDArray[np.float64] = (scores * np.sqrt(lengths.clip(max=identify.READ_BYTES))[:, None]).sum(0)
    return weighed


def _prepare(text: str) -> bytes:
    """The identifier knows hardly any text in capitals."""
    return (text.lower() if text.isupper() else text).strip().encode()
