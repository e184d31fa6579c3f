"""Figures and their intervals, against known values."""

import numpy as np
import pytest

from recipes.bundled.exam.figure import count_of, mean, median, ratio, share, wilson


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (180, 200, 0.8506, 0.9343), (9, 9, 0.7009, 1)],
)
def test_wilson_intervals_are_the_published_ones(
    right: int, count: int, low: float, high: float
) -> None:
    """Wilson intervals equal published values, also at the edges."""
    assert wilson(right, count) == pytest.approx((low, high), abs=1e-4)


def test_an_interval_of_95_percent_holds_in_95_percent() -> None:
    """Over many samples of a known share, the interval misses it about once in twenty."""
    draws = np.random.default_rng(1).binomial(200, 0.9, size=2000)
    held = [low <= 0.9 <= high for low, high in (wilson(int(n), 200) for n in draws)]
    assert 0.93 < np.mean(held) < 0.97


def test_goals_are_met_or_missed_in_the_unit_of_the_figure() -> None:
    """A goal is compared in the unit of the figure; without a goal there is no verdict."""
    assert share("x", [True] * 9 + [False], ">= 90").met is True
    assert share("x", [True] * 8 + [False] * 2, ">= 90").met is False
    assert count_of("x", [False] * 500, "<= 0").met is True
    assert count_of("x", [False] * 499 + [True], "<= 0").met is False
    assert share("x", [True]).met is None


def test_few_questions_are_marked() -> None:
    """A figure of fewer than 200 questions is marked."""
    assert "fewer than 200" in share("x", [True] * 199).sample_size
    assert share("x", [True] * 200).sample_size == "200"


def test_a_ratio_is_of_sums_and_its_interval_of_replies() -> None:
    """A ratio weights long replies more; its interval contains it and is wider for fewer
    replies."""
    few = ratio("x", [(1, 2), (0, 8)] * 5)
    many = ratio("x", [(1, 2), (0, 8)] * 500)
    assert few.value == many.value == pytest.approx(10)
    assert few.low is not None
    assert few.high is not None
    assert many.low is not None
    assert many.high is not None
    assert few.low < many.low < 10 < many.high < few.high


def test_mean_and_median_of_what_is_known() -> None:
    """Mean and median equal numpy's; an empty set gives a figure with count 0."""
    values = list(np.random.default_rng(0).normal(3, 1, 400))
    assert mean("x", values).value == pytest.approx(np.mean(values))
    assert median("x", values, "s").value == pytest.approx(np.median(values))
    for empty in (mean("x", []), median("x", []), share("x", []), ratio("x", [])):
        assert empty.count == 0
