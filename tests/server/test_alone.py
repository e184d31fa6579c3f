"""Tests of callers in real time are kept apart from those that run several at once."""

import pytest


def test_tests_of_the_server_run_alone(request: pytest.FixtureRequest) -> None:
    """Guards: this folder's tests bear the mark by which `make test` runs them one by one. Without
    it, this one would run among the others, and say so."""
    assert request.node.get_closest_marker("alone")
