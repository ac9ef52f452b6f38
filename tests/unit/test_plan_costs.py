"""Seconds of exchanges, against figures worked out by hand and measured on Gloo."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.lab.plan.cluster import parse_link
from lockstep.lab.plan.costs import LinkModel, Wiring, expected_maximum, half_ring_seconds, ring_seconds, tree_seconds

GIGABIT = LinkModel("1gbit at line rate", 125e6)
BASE = 4 * 60_880_896
"""Bytes of field report 1's gradients."""


def n(*workers: float) -> np.ndarray:
    return np.array(workers, np.float64)


def test_a_ring_follows_the_formula_of_field_report_1() -> None:
    assert ring_seconds(BASE, n(1, 2, 4), GIGABIT) == pytest.approx([0.0, 1.948, 2.922], abs=0.001)


@pytest.mark.parametrize(
    ("link", "workers", "measured"),
    [("1gbit", 2, 2.05), ("1gbit", 4, 3.09), ("100mbit", 2, 20.9), ("100mbit", 4, 31.6)],
)
def test_presets_predict_measured_gloo_all_reduces(link: str, workers: int, measured: float) -> None:
    assert ring_seconds(243e6, n(workers), parse_link(link))[0] == pytest.approx(measured, rel=0.05)


def test_a_hierarchical_all_reduce_crosses_the_slow_link_once_per_node() -> None:
    wiring = Wiring(GIGABIT, LinkModel("fast", 1e15), per_node=2, algorithm="hierarchical")
    assert wiring.time_all_reduce(BASE, n(2, 4)) == pytest.approx([0.0, 1.948], abs=0.001)
    flat = Wiring(GIGABIT, LinkModel("fast", 1e15), per_node=2)
    assert flat.time_all_reduce(BASE, n(2, 4)) == pytest.approx([0.0, 2.922], abs=0.001)


def test_a_tree_is_faster_than_a_ring_for_small_messages_among_many_workers() -> None:
    far = LinkModel("far", 1e9, latency_seconds=0.001)
    assert tree_seconds(1e3, n(1024), far) < ring_seconds(1e3, n(1024), far)
    assert tree_seconds(1e3, n(8), far)[0] == pytest.approx(2e-6 + 6 * 0.001)
    assert tree_seconds(1e9, n(8), GIGABIT) > ring_seconds(1e9, n(8), GIGABIT)
    assert tree_seconds(1e9, n(1), GIGABIT) == 0


def test_a_reduce_scatter_is_half_of_a_ring() -> None:
    assert half_ring_seconds(1e8, n(4), GIGABIT) == pytest.approx(0.6)


def test_a_node_shares_its_link_among_its_workers() -> None:
    wiring = Wiring(GIGABIT, LinkModel("fast", 1e10), per_node=4)
    assert wiring.send_rate(n(1, 4, 8)) == pytest.approx([1e10, 1e10, 125e6 / 4])


def test_the_expected_maximum_matches_tables_of_the_normal_distribution() -> None:
    assert expected_maximum(n(1, 2, 10, 100)) == pytest.approx([0.0, 0.564, 1.539, 2.508], abs=0.03)


@settings(deadline=None)
@given(
    st.floats(1, 1e12),
    st.integers(1, 4000),
    st.floats(1e3, 1e12),
    st.floats(0, 1),
    st.sampled_from(["ring", "tree", "hierarchical"]),
    st.integers(1, 16),
)
def test_an_exchange_never_takes_less_with_more_bytes_more_workers_or_a_slower_link(
    size: float, workers: int, rate: float, latency: float, algorithm: str, per_node: int
) -> None:
    inside = LinkModel("inside", 10 * rate, latency / 10)
    wiring = Wiring(LinkModel("between", rate, latency), inside, per_node, algorithm)
    slower = Wiring(
        LinkModel("between", rate / 2, latency), LinkModel("inside", 5 * rate, latency / 10), per_node, algorithm
    )
    seconds = wiring.time_all_reduce(size, n(workers, workers + 1))
    slack = 1 + 1e-9
    assert seconds[0] <= seconds[1] * slack
    assert seconds[1] <= wiring.time_all_reduce(2 * size, n(workers + 1))[0] * slack
    assert seconds[1] <= slower.time_all_reduce(size, n(workers + 1))[0] * slack
