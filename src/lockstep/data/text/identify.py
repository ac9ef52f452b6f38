"""Identifies languages with the model of py3langid, for many sentences at once.

The model looks for byte sequences with a finite automaton and adds up a score for every language. py3langid does this for
one text at a time in Python; here the automaton walks through all sentences in parallel, with array operations.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lockstep.data.text.languages import name_script, split_code

READ_BYTES = 160
"""The beginning of a sentence is enough."""
SENTENCES_AT_ONCE = 4096
COMMON = (
    *("en", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "no", "fi", "pl", "cs", "hu", "ro", "tr", "id", "vi", "ca"),
    *("sl", "hr", "lt", "lv", "et", "ru", "uk", "bg", "mk", "ar", "fa", "ur", "hi", "mr", "zh", "ja"),
)
"""Sentences are compared with those of these languages that have the script of a wanted language."""
_RELATED = ("da no nn", "hr sr bs", "cs sk", "id ms", "gl pt", "nl af", "es ca gl", "bg mk", "zh yue wuu", "hi mr ne")
"""A sentence may look like one of the others, so they are not compared with each other."""
_ALIASES = {"nb": "no", "iw": "he", "in": "id", "sh": "sr", "fil": "tl", "cmn": "zh"}

Scores = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Sentences:
    """UTF-8 text with the places where sentences start and end."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    def cut(self, start: int, end: int) -> "Sentences":
        return Sentences(self.data, self.starts[start:end], self.ends[start:end])


def known_language(code: str) -> str | None:
    """Returns the model's name of a language, or None if the model does not know it."""
    base = split_code(code)[0]
    name = _ALIASES.get(base, base)
    return name if name in _load().classes else None


def choose_rivals(wanted: str, languages: Collection[str]) -> list[str]:
    """Returns the languages that text in the wanted language is compared with, without those it is easily mistaken for."""
    scripts = {name_script(language) for language in languages}
    related = {name for group in _RELATED if wanted in group.split() for name in group.split()}
    return sorted({*languages, *(one for one in COMMON if name_script(one) in scripts)} - related - {wanted})


def score(sentences: Sentences, languages: Sequence[str]) -> Scores:
    """Returns how well each language fits each sentence, `[sentences, languages]`, divided by the square root of the
    sentence's bytes, so that one margin suits all lengths."""
    model = _load()
    names = np.array(model.classes)
    columns = np.flatnonzero(np.isin(names, languages))
    priors = model.priors[columns]
    parts = []
    for start in range(0, len(sentences.starts), SENTENCES_AT_ONCE):
        part = sentences.cut(start, start + SENTENCES_AT_ONCE)
        keys, repeats = np.unique(model.find_features(part), return_counts=True)
        places, features = np.divmod(keys, len(model.weights))  # [features of all sentences]
        firsts = np.flatnonzero(np.diff(places, prepend=-1))
        sums = np.tile(priors, (len(part.starts), 1))  # [sentences, classes]
        if len(firsts):
            used, rows = np.unique(features, return_inverse=True)
            weights = model.weights[np.ix_(used, columns)].astype(np.float32)  # [used, classes]
            products = weights[rows] * np.log1p(repeats).astype(np.float32)[:, None]
            sums[places[firsts]] += np.add.reduceat(products, firsts, axis=0)
        lengths = np.clip(part.ends - part.starts, 1, READ_BYTES)
        parts.append(sums / np.sqrt(lengths)[:, None].astype(np.float32))
    scores = np.concatenate(parts)
    return np.stack([scores[:, names[columns] == language].max(1) for language in languages], axis=1)


def identify_language(sentences: Sequence[str]) -> tuple[str, float]:
    """Returns the language of a text, as an ISO 639 code, and the share of its sentences that look like that language."""
    texts = [text.encode() for text in sentences if text.strip()]
    if not texts:
        return "und", 0.0
    ends = np.cumsum([len(text) for text in texts])
    starts = ends - [len(text) for text in texts]
    languages = sorted(set(_load().classes) - {"zxx"})
    scores = score(Sentences(np.frombuffer(b"".join(texts), np.uint8), starts, ends), languages)
    best = int((scores - scores.max(1, keepdims=True)).sum(0).argmax())
    return languages[best], float((scores.argmax(1) == best).mean())


class _Model:
    """The arrays of py3langid's model."""

    def __init__(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        model = LanguageIdentifier.from_model_file(MODEL_FILE)
        self.moves = np.asarray(model.tk_nextmove)  # [256 * rows] the next state
        self.rows = np.asarray(model.tk_row).astype(np.int32) << 8  # [states] the first entry in `moves`
        self.features = np.asarray(model.tk_output, np.int32)  # [states] the feature that ends here, or -1
        self.weights = model.nb_ptc  # [features, classes]
        self.priors = model.nb_pc  # [classes]
        self.classes: list[str] = model.nb_classes  # a language with two scripts has two classes

    def find_features(self, sentences: Sentences) -> npt.NDArray[np.int32]:
        """Returns a number for every feature in a sentence: index of the sentence * number of features + feature."""
        lengths = np.minimum(sentences.ends - sentences.starts, READ_BYTES)
        order = np.argsort(-lengths, kind="stable").astype(np.int32)
        starts = sentences.starts[order]
        unfinished = np.searchsorted(-lengths[order], -np.arange(READ_BYTES))  # [bytes] sentences that are longer
        states = np.zeros(len(order), self.moves.dtype)
        keys = [np.zeros(0, np.int32)]
        for place, count in enumerate(unfinished[unfinished > 0]):
            states = self.moves[self.rows[states[:count]] + sentences.data[starts[:count] + place]]
            features = self.features[states]
            present = np.flatnonzero(features >= 0)
            keys.append(order[present] * np.int32(len(self.weights)) + features[present])
        return np.concatenate(keys)


@lru_cache(maxsize=1)
def _load() -> _Model:
    return _Model()
