"""Attention between pieces becomes an alignment of words."""

import numpy as np
import pytest

from lockstep.serve.word_alignment import align_words, place_pieces, sum_by_word
from lockstep.translate.translator import PieceAttention


def attend(source: str, target: str, weights: list[list[float]]) -> PieceAttention:
    return PieceAttention(source.split(), target.split(), np.array(weights, np.float32))


@pytest.mark.parametrize(
    ("text", "pieces", "places"),
    [
        ("The dog sleeps.", "▁The ▁do g ▁sleep s .", [0, 1, 1, 2, 2, 2]),
        ("  The\tdog ", "▁The ▁ dog", [0, 1, 1]),
        ("Größe", "▁Gr <0xC3> <0xB6> ße", [0, 0, 0, 0]),
        ("dog", "dog", [0]),
        ("", "", []),
    ],
)
def test_a_mark_begins_the_next_word(text: str, pieces: str, places: list[int]) -> None:
    assert place_pieces(text, pieces.split(), True) == (text.split(), places)


def test_pieces_of_normalized_text_are_placed_by_length() -> None:
    words, places = place_pieces("dogs \u200b run home", ["▁dog", "s", "▁run", "▁home"], True)
    assert words == ["dogs", "\u200b", "run", "home"]
    assert places == [0, 0, 2, 3]


def test_every_piece_is_a_word_in_a_language_without_spaces() -> None:
    assert place_pieces("猫が寝る。", ["▁", "猫", "が", "寝る", "。"], False) == (
        ["猫", "が", "寝る", "。"],
        [0, 0, 1, 2, 3],
    )
    assert place_pieces("猫が", ["▁", "<0xE7>", "が"], False) == (["猫が"], [0, 0, 0])


def test_source_pieces_add_up_and_target_pieces_are_averaged() -> None:
    pieces = np.array([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]], np.float32)
    weights = sum_by_word(pieces, [0, 0, 1], [0, 1, 1], 2, 2)
    assert weights.tolist() == [[0.25, 0.75], [1.0, 0.0]]


def test_links_join_the_words_of_both_texts() -> None:
    attention = attend("▁the ▁do g", "▁der ▁Hund", [[0.9, 0.06, 0.02], [0.02, 0.5, 0.4]])
    alignment = align_words("the dog", "der Hund", [attention], ("en", "de"))
    assert (alignment.source, alignment.target) == (["the", "dog"], ["der", "Hund"])
    assert [(link.target, link.source, link.weight) for link in alignment.links] == [
        (0, 0, 0.9),
        (0, 1, 0.08),
        (1, 1, 0.9),
    ]


def test_parts_of_a_long_sentence_are_linked_only_within() -> None:
    first, second = attend("▁a ▁b", "▁A", [[0.5, 0.5]]), attend("▁c", "▁C ▁D", [[1.0], [1.0]])
    alignment = align_words("a b c", "A C D", [first, second], ("en", "de"))
    assert [(link.target, link.source) for link in alignment.links] == [(0, 0), (0, 1), (1, 2), (2, 2)]
