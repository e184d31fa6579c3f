"""The learning rate of a stage, in one run or in several runs of one training."""

import argparse

import pytest

from recipes.bundled.budget import Budget
from recipes.bundled.run import part_of
from recipes.bundled.train_lm import LmTraining


def test_budget_rises_and_falls() -> None:
    """The rate rises, falls and ends at its lowest value, by steps or by the clock."""
    now = [0.0]
    budget = Budget(seconds=100, clock=lambda: now[0])
    assert budget.rate(0) < 0.05
    assert budget.rate(500) == pytest.approx(1.0)
    now[0] = 100
    assert budget.progress(0) == 1
    assert budget.rate(500) == pytest.approx(0.02)


def test_parts_of_a_training_follow_one_course() -> None:
    """Each run continues the rate of the one before, whatever its length; no rate rises after the
    first steps."""
    now = [0.0]
    parts = [
        Budget(seconds=10 * n, clock=lambda: now[0], span=LmTraining(part=(n, 3)).span)
        for n in (1, 2, 3)
    ]
    assert parts[0].rate(500) == pytest.approx(1.0)
    ends = []
    for part in parts:
        begun = part.rate(500)
        now[0] = part.began + part.seconds
        ends.append((begun, part.rate(500)))
        assert part.progress(500) == 1
        now[0] = 0
    assert ends[0][1] == pytest.approx(ends[1][0])
    assert ends[1][1] == pytest.approx(ends[2][0])
    assert ends[2][1] == pytest.approx(0.02)


def test_the_course_is_that_of_the_whole_training() -> None:
    """The second of two runs starts in the middle of the schedule and ends at its end."""
    now = [0.0]
    budget = Budget(seconds=10, clock=lambda: now[0], span=LmTraining(part=(2, 2)).span)
    assert budget.course(0) == 0.5
    now[0] = 10
    assert budget.course(0) == 1


@pytest.mark.parametrize("text", ["2", "0/3", "4/3", "a/b", "1/", "-1/2"])
def test_an_invalid_part_is_refused(text: str) -> None:
    """A bad part fails with the given and the allowed values."""
    with pytest.raises(argparse.ArgumentTypeError, match=f"{text!r}; allowed: I/N"):
        part_of(text)


def test_a_part_is_read() -> None:
    """A part is parsed as written; `LmTraining` also rejects a bad part."""
    assert part_of("2/3") == (2, 3)
    with pytest.raises(ValueError, match="part 0 of 0; allowed"):
        LmTraining(part=(0, 0))
