"""Parts of a packed batch need little padding, and every word keeps its place."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.models.packed import MAX_PARTS, MIN_PART_WORDS, Layout, choose_cuts

LENGTHS = st.lists(st.tuples(st.integers(1, 80), st.integers(1, 80)), min_size=1, max_size=200)


def longest_first(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    source, target = np.array(pairs).T
    order = np.argsort(-(source + target), kind="stable")
    return source[order], target[order]


def count_scores(lengths: np.ndarray, cuts: list[int]) -> int:
    """Returns how many scores padded self-attention computes."""
    return sum(len(part) * int(part.max()) ** 2 for part in np.split(lengths, cuts))


@settings(deadline=None)
@given(LENGTHS)
def test_parts_are_few_and_contain_every_sentence_once(pairs: list[tuple[int, int]]) -> None:
    source, target = longest_first(pairs)
    cuts = choose_cuts(source, target)
    assert len(cuts) < MAX_PARTS
    assert not cuts or min(part.sum() for part in np.split(source + target, cuts)) >= MIN_PART_WORDS
    assert cuts == sorted(set(cuts))
    assert all(0 < row < len(pairs) for row in cuts)
    for lengths in (source, target):
        layout = Layout.from_lengths(lengths, cuts)
        assert sum(part.rows for part in layout.parts or (layout,)) == len(pairs)
        assert sum(part.words for part in layout.parts or (layout,)) == layout.words == lengths.sum()
        assert np.array_equal(np.concatenate([part.lengths for part in layout.parts or (layout,)]), lengths)


def test_sentences_of_similar_length_are_padded_together() -> None:
    assert choose_cuts(np.array([10, 10, 10, 9, 9]), np.array([11, 10, 10, 10, 9])) == []
    assert Layout.from_lengths(np.array([5, 4])).parts == ()
    assert choose_cuts(np.array([30]), np.array([30])) == []
    assert choose_cuts(np.array([30, 5, 5]), np.array([30, 5, 5])) == [], "too few words for a part"


def test_parts_of_mixed_lengths_need_little_padding() -> None:
    """With lengths like those of captions, attention over one padded batch computes several times the needed scores."""
    draw = np.random.default_rng(1)
    lengths = draw.gamma(7.0, 2.0, 150).astype(int) + 2
    pairs = zip(lengths.tolist(), (lengths + draw.integers(-1, 3, 150)).tolist(), strict=True)
    source, target = longest_first(list(pairs))
    cuts = choose_cuts(source, target)
    for lengths in (source, target):
        needed = int((lengths**2).sum())
        assert count_scores(lengths, []) > 3 * needed
        assert count_scores(lengths, cuts) < 2.2 * needed


@settings(deadline=None)
@given(LENGTHS)
def test_padding_and_packing_the_parts_is_a_round_trip(pairs: list[tuple[int, int]]) -> None:
    source, target = longest_first(pairs)
    layout = Layout.from_lengths(source, choose_cuts(source, target)).map(torch.clone)
    words, parts = torch.arange(layout.words, dtype=torch.float32).view(-1, 1), layout.parts or (layout,)
    split = words.split([part.words for part in parts])
    packed = [part.pack(part.pad(some)) for part, some in zip(parts, split, strict=True)]
    assert torch.equal(torch.cat(packed), words)
