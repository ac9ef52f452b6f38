"""Tests that share something are run by one process: with a version of pytest that xdist cannot follow, silently not."""

import pytest


def test_a_test_of_a_parallel_run_has_its_group_in_its_name(request: pytest.FixtureRequest) -> None:
    if not hasattr(request.config, "workerinput"):
        pytest.skip("the tests are run by one process")
    assert request.node.nodeid.endswith(f"@{request.node.path}")
