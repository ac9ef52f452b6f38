from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.data.corpus.batches import GlobalBatch, Order, Position
from lockstep.data.data_settings import BatchSettings
from lockstep.errors import LockstepError

QUICK = settings(deadline=None, max_examples=60, database=None)
LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=60)
BUDGETS = st.one_of(
    st.integers(12, 80).map(lambda words: {"words": words}), st.integers(1, 20).map(lambda n: {"sentences": n})
)


def order(pairs: list[tuple[int, int]], seed: int = 1, **batch: Any) -> Order:
    source, target = np.array(pairs, dtype=np.int32).T
    return Order(source, target, BatchSettings(**batch), seed)


def corpus(sentences: int, longest: int = 30) -> list[tuple[int, int]]:
    draw = np.random.default_rng(5)
    return [(int(s), int(t)) for s, t in draw.integers(1, longest + 1, (sentences, 2))]


def plain(batches: list[np.ndarray]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def take(order: Order, position: Position, count: int) -> list[tuple[list[int], int, Position]]:
    batches = islice(order.batches(position), count)
    return [(batch.indices.tolist(), batch.target_words, batch.after) for batch in batches]


def batch_of_all(order: Order) -> GlobalBatch:
    """A batch of all sentences."""
    return GlobalBatch(np.arange(len(order.target_lengths)), int(order.target_lengths.sum()), Position())


@QUICK
@given(LENGTHS, BUDGETS, st.booleans(), st.integers(-(2**63), 2**64), st.integers(0, 1000))
def test_the_order_is_a_pure_function_of_lengths_settings_and_seed(
    pairs: list[tuple[int, int]], budget: dict[str, int], bucket: bool, seed: int, epoch: int
) -> None:
    first, second = (order(pairs, seed, **budget, bucket=bucket) for _ in range(2))
    second.epoch(epoch + 1)  # earlier calls do not matter
    assert plain(first.epoch(epoch)) == plain(second.epoch(epoch))


def test_the_order_stays_the_same_from_release_to_release() -> None:
    """A run that is resumed with a newer Lockstep must find the batches it was started with."""
    pairs = [(1, 2), (2, 2), (3, 1), (1, 1), (4, 5), (2, 3)]
    assert plain(order(pairs, words=5, bucket=True).epoch(0)) == [[4], [3, 2, 0], [1, 5]]
    assert plain(order(pairs, words=5, bucket=False).epoch(0)) == [[4], [0, 1, 2], [5, 3]]


def test_micro_batches_and_balance_do_not_change_the_order() -> None:
    pairs = corpus(50)
    usual = order(pairs, words=60)
    other = order(pairs, words=60, micro_words=7, balance=False)
    assert plain(usual.epoch(3)) == plain(other.epoch(3))


@QUICK
@given(LENGTHS, BUDGETS, st.booleans(), st.integers(0, 5))
def test_every_sentence_comes_exactly_once_per_epoch(
    pairs: list[tuple[int, int]], budget: dict[str, int], bucket: bool, epoch: int
) -> None:
    batches = order(pairs, **budget, bucket=bucket).epoch(epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(pairs)))
    assert all(len(batch) for batch in batches)


@QUICK
@given(LENGTHS, st.integers(12, 80), st.booleans())
def test_batches_never_exceed_their_words_and_are_well_filled(
    pairs: list[tuple[int, int]], words: int, bucket: bool
) -> None:
    batches = order(pairs, words=words, bucket=bucket).epoch(0)
    sizes = [sum(pairs[i][1] for i in batch) for batch in batches]
    assert max(sizes) <= words
    longest = max(target for _, target in pairs)
    assert sum(size <= words - longest for size in sizes) <= 1  # only the last one cut may have room for one more


@QUICK
@given(LENGTHS, st.integers(1, 20), st.booleans())
def test_all_batches_but_one_have_the_wanted_sentences(
    pairs: list[tuple[int, int]], sentences: int, bucket: bool
) -> None:
    sizes = sorted(len(batch) for batch in order(pairs, sentences=sentences, bucket=bucket).epoch(0))
    assert sizes[1:] == [sentences] * (len(sizes) - 1)
    assert 1 <= sizes[0] <= sentences


def test_bucketing_puts_sentences_of_similar_length_together() -> None:
    pairs = corpus(200)

    def spread(bucket: bool) -> list[int]:
        batches = order(pairs, sentences=10, bucket=bucket).epoch(0)
        return [int(np.ptp([pairs[i][1] for i in batch])) for batch in batches]

    assert max(spread(bucket=True)) <= 4
    assert min(spread(bucket=False)) >= 10


@QUICK
@given(LENGTHS, BUDGETS, st.integers(0, 2**32), st.integers(0, 25))
def test_resuming_from_any_position_gives_the_same_continuation(
    pairs: list[tuple[int, int]], budget: dict[str, int], seed: int, consumed: int
) -> None:
    uninterrupted = take(order(pairs, seed, **budget), Position(), consumed + 8)
    position = uninterrupted[consumed - 1][2] if consumed else Position()
    assert take(order(pairs, seed, **budget), position, 8) == uninterrupted[consumed:]


def test_the_last_batch_of_an_epoch_leads_to_the_first_of_the_next() -> None:
    batches = order([(1, 1)] * 4, sentences=2)
    assert [after for _, _, after in take(batches, Position(), 4)] == [
        Position(0, 1),
        Position(1, 0),
        Position(1, 1),
        Position(2, 0),
    ]


def test_a_batch_counts_the_target_words_of_all_its_sentences() -> None:
    pairs = corpus(40)
    for indices, words, _ in take(order(pairs, words=50), Position(), 12):
        assert words == sum(pairs[i][1] for i in indices)


@QUICK
@given(LENGTHS, st.integers(1, 5), st.booleans())
def test_the_shares_of_all_workers_make_up_the_batch(pairs: list[tuple[int, int]], workers: int, balance: bool) -> None:
    everything = order(pairs, sentences=1000, balance=balance)
    batch = next(everything.batches(Position()))
    shares = [everything.share(batch, worker, workers) for worker in range(workers)]
    assert sorted(np.concatenate(shares).tolist()) == sorted(batch.indices.tolist())
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@QUICK
@given(LENGTHS, st.integers(1, 5))
def test_balanced_shares_differ_by_no_more_than_the_longest_pair(pairs: list[tuple[int, int]], workers: int) -> None:
    everything = order(pairs, sentences=1000)
    work = [
        sum(map(sum, (pairs[i] for i in everything.share(batch_of_all(everything), w, workers))))
        for w in range(workers)
    ]
    assert max(work) - min(work) <= max(map(sum, pairs))


def test_balanced_shares_take_the_longest_sentences_in_turn() -> None:
    eight = order([(n, 2 * n) for n in (1, 2, 3, 4, 5, 6, 7, 8)], sentences=8)
    assert plain([eight.share(batch_of_all(eight), worker, 2) for worker in range(2)]) == [[7, 4, 3, 0], [6, 5, 2, 1]]
    assert plain([eight.share(batch_of_all(eight), worker, 3) for worker in range(3)]) == [[7, 2, 1], [6, 3, 0], [5, 4]]


def test_without_balance_shares_are_consecutive_and_of_equal_count() -> None:
    everything = order([(9, 9), (9, 9), (1, 1), (1, 1), (5, 5)], sentences=5, balance=False)
    batch = GlobalBatch(np.array([0, 1, 2, 3, 4]), 25, Position())
    assert plain([everything.share(batch, worker, 2) for worker in range(2)]) == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("balance", [True, False])
def test_more_workers_than_sentences_leave_some_shares_empty(balance: bool) -> None:
    few = order([(1, 1), (2, 2)], sentences=2, balance=balance)
    shares = [few.share(batch_of_all(few), worker, 3) for worker in range(3)]
    assert [len(share) for share in shares] == [1, 1, 0]
    assert [len(piece) for piece in few.micro_batches(shares[2])] == [0]


@QUICK
@given(LENGTHS, st.integers(1, 40))
def test_micro_batches_cut_the_share_in_order_within_their_budget(
    pairs: list[tuple[int, int]], micro_words: int
) -> None:
    everything = order(pairs, sentences=1000, micro_words=micro_words)
    share = everything.share(batch_of_all(everything), 0, 2)
    pieces = everything.micro_batches(share)
    assert np.concatenate(pieces).tolist() == share.tolist()
    assert all(len(piece) for piece in pieces)
    for piece in pieces:  # a sentence longer than the budget is a piece of its own
        assert len(piece) == 1 or sum(pairs[i][1] for i in piece) <= micro_words


def test_without_micro_words_a_share_is_one_piece() -> None:
    share = np.array([2, 0, 1])
    assert plain(order([(1, 1)] * 3, sentences=3).micro_batches(share)) == [[2, 0, 1]]


def test_epochs_and_seeds_shuffle_differently() -> None:
    pairs = corpus(100)
    plans = [plain(order(pairs, seed, words=60).epoch(epoch)) for seed in (0, 1, 2, 2**62) for epoch in (0, 1)]
    assert len({str(plan) for plan in plans}) == len(plans)


def test_negative_and_very_large_seeds_shuffle_differently() -> None:
    pairs = corpus(100)
    plans = [
        plain(order(pairs, seed, words=60).epoch(epoch)) for seed in (-1, -2, 2**63, 2**63 + 1) for epoch in (0, 1)
    ]
    assert len({str(plan) for plan in plans}) == len(plans)


def test_a_budget_below_the_longest_sentence_is_refused_with_both_numbers() -> None:
    with pytest.raises(LockstepError, match=r"batch\.words 8 .*\(9 target words\)") as caught:
        order([(1, 9), (20, 1)], words=8).check()
    assert caught.value.code == 2
    assert "at least 9" in caught.value.remedy
    order([(20, 9)], words=9).check()
    assert len(order([(1, 9), (20, 1)], words=8).epoch(0)) == 2, "a batch has a sentence at least"


def test_a_batch_size_per_worker_must_be_resolved_first() -> None:
    with pytest.raises(ValueError, match="per-worker"):
        order([(1, 1)], words=8, per="worker")


def test_the_digest_depends_on_the_sentences_and_their_order() -> None:
    def digest(*indices: int, dtype: type = np.int64) -> str:
        return GlobalBatch(np.array(indices, dtype), 1, Position()).digest

    assert digest(1, 2, 3) == "2bcb8d87"
    assert digest(1, 2, 3) == digest(1, 2, 3, dtype=np.int32)
    assert len({digest(1, 2, 3), digest(1, 3, 2), digest(1, 2), digest(1, 2, 4)}) == 4


def test_without_shuffle_and_bucket_every_epoch_has_the_order_of_the_text() -> None:
    unshuffled = order(corpus(30), sentences=8, bucket=False, shuffle=False)
    for epoch in (0, 1):
        assert [index for batch in unshuffled.epoch(epoch) for index in batch.tolist()] == list(range(30))


def test_without_shuffle_twice_the_batch_holds_the_sentences_of_two_batches() -> None:
    """One worker and several workers then compute the same update."""
    single, double = (plain(order(corpus(32), sentences=n, bucket=False, shuffle=False).epoch(0)) for n in (4, 8))
    assert [first + second for first, second in zip(single[::2], single[1::2], strict=True)] == double


def test_without_shuffle_buckets_come_in_the_order_of_their_lengths() -> None:
    pairs = corpus(50)
    lengths = [
        pairs[index][1] for batch in order(pairs, sentences=10, shuffle=False, bucket=True).epoch(3) for index in batch
    ]
    assert lengths == sorted(lengths)


def test_sentences_are_not_counted_in_images() -> None:
    with pytest.raises(LockstepError, match="batch.images counts images") as caught:
        Order(np.ones(4, int), np.ones(4, int), BatchSettings(images=2), seed=1)
    assert caught.value.code == 2
