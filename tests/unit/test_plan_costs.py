"""Seconds of exchanges, against figures worked out by hand and measured on Gloo."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.lab.plan.cluster import pipe
from lockstep.lab.plan.costs import Pipe, Wiring, expected_maximum, half_ring, ring, tree

GIGABIT = Pipe("1gbit at line rate", 125e6)
BASE = 4 * 60_880_896
"""Bytes of field report 1's gradients."""


def n(*workers: float) -> np.ndarray:
    return np.array(workers, np.float64)


def test_a_ring_is_the_formula_of_the_field_report() -> None:
    assert ring(BASE, n(1, 2, 4), GIGABIT) == pytest.approx([0.0, 1.948, 2.922], abs=0.001)


@pytest.mark.parametrize(
    ("link", "workers", "measured"),
    [("1gbit", 2, 2.05), ("1gbit", 4, 3.09), ("100mbit", 2, 20.9), ("100mbit", 4, 31.6)],
)
def test_presets_give_what_gloo_was_measured_at(link: str, workers: int, measured: float) -> None:
    assert ring(243e6, n(workers), pipe(link))[0] == pytest.approx(measured, rel=0.05)


def test_two_levels_cross_the_slow_link_once_for_each_node() -> None:
    wiring = Wiring(GIGABIT, Pipe("fast", 1e15), per_node=2, algorithm="hierarchical")
    assert wiring.all_reduce(BASE, n(2, 4)) == pytest.approx([0.0, 1.948], abs=0.001)
    flat = Wiring(GIGABIT, Pipe("fast", 1e15), per_node=2)
    assert flat.all_reduce(BASE, n(2, 4)) == pytest.approx([0.0, 2.922], abs=0.001)


def test_a_tree_wins_where_latency_counts_and_many_take_part() -> None:
    far = Pipe("far", 1e9, latency_seconds=0.001)
    assert tree(1e3, n(1024), far) < ring(1e3, n(1024), far)
    assert tree(1e3, n(8), far)[0] == pytest.approx(2e-6 + 6 * 0.001)
    assert tree(1e9, n(8), GIGABIT) > ring(1e9, n(8), GIGABIT)
    assert tree(1e9, n(1), GIGABIT) == 0


def test_a_reduce_scatter_is_half_of_a_ring() -> None:
    assert half_ring(1e8, n(4), GIGABIT) == pytest.approx(0.6)


def test_a_node_shares_its_link_among_its_workers() -> None:
    wiring = Wiring(GIGABIT, Pipe("fast", 1e10), per_node=4)
    assert wiring.rate(n(1, 4, 8)) == pytest.approx([1e10, 1e10, 125e6 / 4])


def test_the_slowest_of_many_is_as_late_as_tables_of_the_normal_distribution_say() -> None:
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
    inside = Pipe("inside", 10 * rate, latency / 10)
    wiring = Wiring(Pipe("between", rate, latency), inside, per_node, algorithm)
    slower = Wiring(Pipe("between", rate / 2, latency), Pipe("inside", 5 * rate, latency / 10), per_node, algorithm)
    seconds = wiring.all_reduce(size, n(workers, workers + 1))
    slack = 1 + 1e-9
    assert seconds[0] <= seconds[1] * slack
    assert seconds[1] <= wiring.all_reduce(2 * size, n(workers + 1))[0] * slack
    assert seconds[1] <= slower.all_reduce(size, n(workers + 1))[0] * slack
