"""Grids for attention: parts of a batch that waste little, and every word at its place."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.models.packed import LEAST_WORDS, MOST_PARTS, Layout, cuts

LENGTHS = st.lists(st.tuples(st.integers(1, 80), st.integers(1, 80)), min_size=1, max_size=200)


def longest_first(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    source, target = np.array(pairs).T
    order = np.argsort(-(source + target), kind="stable")
    return source[order], target[order]


def room(lengths: np.ndarray, at: list[int]) -> int:
    """Scores that attention within these sentences computes."""
    return sum(len(part) * int(part.max()) ** 2 for part in np.split(lengths, at))


@settings(deadline=None)
@given(LENGTHS)
def test_parts_are_few_and_hold_every_sentence_once(pairs: list[tuple[int, int]]) -> None:
    source, target = longest_first(pairs)
    at = cuts(source, target)
    assert len(at) < MOST_PARTS
    assert not at or min(part.sum() for part in np.split(source + target, at)) >= LEAST_WORDS
    assert at == sorted(set(at))
    assert all(0 < row < len(pairs) for row in at)
    for lengths in (source, target):
        layout = Layout.of(lengths, at)
        assert sum(part.rows for part in layout.parts or (layout,)) == len(pairs)
        assert sum(part.words for part in layout.parts or (layout,)) == layout.words == lengths.sum()
        assert np.array_equal(np.concatenate([part.lengths for part in layout.parts or (layout,)]), lengths)


def test_sentences_of_similar_length_stay_on_one_grid() -> None:
    assert cuts(np.array([10, 10, 10, 9, 9]), np.array([11, 10, 10, 10, 9])) == []
    assert Layout.of(np.array([5, 4])).parts == ()
    assert cuts(np.array([30]), np.array([30])) == []
    assert cuts(np.array([30, 5, 5]), np.array([30, 5, 5])) == [], "too few words to be worth it"


def test_mixed_lengths_waste_little() -> None:
    """Lengths as those of captions: on one grid attention would compute several times as many scores as there are."""
    draw = np.random.default_rng(1)
    lengths = draw.gamma(7.0, 2.0, 150).astype(int) + 2
    pairs = zip(lengths.tolist(), (lengths + draw.integers(-1, 3, 150)).tolist(), strict=True)
    source, target = longest_first(list(pairs))
    at = cuts(source, target)
    for lengths in (source, target):
        needed = int((lengths**2).sum())
        assert room(lengths, []) > 3 * needed
        assert room(lengths, at) < 2.2 * needed


@settings(deadline=None)
@given(LENGTHS)
def test_words_come_back_from_the_grids_of_the_parts(pairs: list[tuple[int, int]]) -> None:
    source, target = longest_first(pairs)
    layout = Layout.of(source, cuts(source, target)).map(torch.clone)
    words, parts = torch.arange(layout.words, dtype=torch.float32).view(-1, 1), layout.parts or (layout,)
    own = words.split([part.words for part in parts])
    back = [part.pack(part.spread(some)) for part, some in zip(parts, own, strict=True)]
    assert torch.equal(torch.cat(back), words)
