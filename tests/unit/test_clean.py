from collections import Counter
from pathlib import Path

import pytest

from lockstep.data.clean import Reason, clean, clean_encoded, piece_fault, text_fault
from lockstep.data.settings import DataSettings

SETTINGS = DataSettings(folder=Path(), train=["t"], validation=["v"], max_words=10, max_ratio=2.0, max_pieces=8)


def words(count: int) -> str:
    return " ".join(["w"] * count)


@pytest.mark.parametrize(
    ("source", "target", "fault"),
    [
        (1, 1, None),
        (0, 3, "empty"),
        (3, 0, "empty"),
        (10, 10, None),
        (11, 10, "long"),
        (10, 11, "long"),
        (2, 7, None),
        (2, 8, "ratio"),
        (8, 2, "ratio"),
    ],
)
def test_pairs_are_judged_by_words_on_both_sides(source: int, target: int, fault: Reason | None) -> None:
    assert text_fault(SETTINGS, words(source), words(target)) == fault


@pytest.mark.parametrize(
    ("source", "target", "fault"), [(8, 8, None), (9, 1, "pieces"), (1, 9, "pieces"), (0, 1, "empty")]
)
def test_pairs_are_judged_by_pieces_on_both_sides(source: int, target: int, fault: Reason | None) -> None:
    assert piece_fault(SETTINGS, source, target) == fault


def test_removed_pairs_are_counted_by_reason_and_the_rest_keep_their_order() -> None:
    removed: Counter[Reason] = Counter()
    pairs = [("a", "A"), ("", "A"), (words(11), "A"), (words(9), "A"), ("b", ""), ("c", "C")]
    assert list(clean(SETTINGS, pairs, removed)) == [("a", "A"), ("c", "C")]
    assert removed == {"empty": 2, "long": 1, "ratio": 1}


def test_encoded_pairs_are_counted_by_reason() -> None:
    removed: Counter[Reason] = Counter()
    sources, targets = [[5], [5] * 9, [5], [5]], [[6], [6], [], [6] * 8]
    assert clean_encoded(SETTINGS, sources, targets, removed) == [0, 3]
    assert removed == {"pieces": 1, "empty": 1}
