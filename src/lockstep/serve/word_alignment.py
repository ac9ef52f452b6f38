"""Joins pieces to words, so that attention between pieces becomes an alignment of words."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from lockstep.data.text.languages import uses_spaces
from lockstep.translate.translator import PieceAttention

WORD_START = "▁"
LEAST_WEIGHT = 0.05
"""Links below this weight are left out."""

Weights = npt.NDArray[np.float32]


@dataclass(frozen=True)
class WordLink:
    """How much of the attention of a target word a source word had; both are places in lists of words."""

    target: int
    source: int
    weight: float


@dataclass(frozen=True)
class WordAlignment:
    """The words of a sentence and of its translation, in order, and the links between them."""

    source: list[str]
    target: list[str]
    links: list[WordLink]


def align_words(
    source: str, target: str, attention: Sequence[PieceAttention], languages: tuple[str, str]
) -> WordAlignment:
    """Returns the alignment of a sentence and its translation. Every word is a part of the text."""
    source_pieces = [piece for part in attention for piece in part.source]
    target_pieces = [piece for part in attention for piece in part.target]
    source_words, source_places = place_pieces(source, source_pieces, uses_spaces(languages[0]))
    target_words, target_places = place_pieces(target, target_pieces, uses_spaces(languages[1]))
    pieces = _join_parts(attention)
    weights = sum_by_word(pieces, target_places, source_places, len(target_words), len(source_words))
    links = [
        WordLink(int(row), int(column), round(float(weights[row, column]), 3))
        for row, column in np.argwhere(weights >= LEAST_WEIGHT)
    ]
    return WordAlignment(source_words, target_words, links)


def place_pieces(text: str, pieces: Sequence[str], has_spaces: bool) -> tuple[list[str], list[int]]:
    """Returns the words of a text, and for every piece the place of its word.

    Where words have spaces between them, "▁" begins the next one. If the pieces have another number of words than the text,
    because the text was normalized, pieces are placed in proportion to their length. In a language without spaces every
    piece is a word, if the text consists of the pieces.
    """
    if not has_spaces:
        plain = [piece.replace(WORD_START, "") for piece in pieces]
        words = [piece for piece in plain if piece]
        if "".join(words) == "".join(text.split()):
            return words, [max(0, count - 1) for count in accumulate(int(bool(piece)) for piece in plain)]
        return [text], [0] * len(pieces)
    words = text.split()
    numbers = list(accumulate(int(piece.startswith(WORD_START)) for piece in pieces))
    first = numbers[0] if numbers else 0
    places = [number - first for number in numbers]
    if places and places[-1] + 1 != len(words):
        places = _place_by_length(words, pieces)
    return words, places


def _place_by_length(words: Sequence[str], pieces: Sequence[str]) -> list[int]:
    """Returns for every piece the place of the word in which the middle of the piece lies."""
    lengths = [max(1, len(piece.replace(WORD_START, ""))) for piece in pieces]
    middles = np.cumsum(lengths) - np.array(lengths) / 2
    ends = np.cumsum([len(word) for word in words])
    places = np.searchsorted(ends, middles * ends[-1] / sum(lengths), side="right")
    return [int(place) for place in places.clip(max=len(words) - 1)]


def sum_by_word(pieces: Weights, rows: Sequence[int], columns: Sequence[int], targets: int, sources: int) -> Weights:
    """Returns the weights of words, `[targets, sources]`: the sum over the pieces of a source word, the mean over the
    pieces of a target word."""
    weights = np.zeros((targets, sources), np.float32)
    np.add.at(weights, (np.array(rows, int)[:, None], np.array(columns, int)[None, :]), pieces)
    counts = np.bincount(np.array(rows, int), minlength=targets).clip(min=1).astype(np.float32)
    mean: Weights = np.divide(weights, counts[:, None])
    return mean


def _join_parts(attention: Sequence[PieceAttention]) -> Weights:
    """Returns the weights of all parts in one array, `[target pieces, source pieces]`. Parts do not see each other."""
    weights = np.zeros((sum(len(part.target) for part in attention), sum(len(part.source) for part in attention)))
    row = column = 0
    for part in attention:
        next_row, next_column = row + len(part.target), column + len(part.source)
        weights[row:next_row, column:next_column] = part.weights
        row, column = next_row, next_column
    return weights.astype(np.float32)
