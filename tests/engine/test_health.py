"""When a component counts as broken, when it gets work again, and when it needs a restart."""

import logging

import pytest

from mosslive.engine.health import FINAL_S, MOST_FAILURES, RETRY_S, Health
from tests.engine.serving import Clock

BAD = RuntimeError("bad")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def fail(health: Health, kind: str = "decode", times: int = MOST_FAILURES) -> None:
    for _ in range(times):
        health.failed(kind, BAD)


def test_failures_in_a_row_are_a_problem_until_one_success(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Fewer than MOST_FAILURES are no problem; the log has one line for the problem, one for its
    end."""
    health = Health("the model", clock)
    with caplog.at_level(logging.INFO, "mosslive.health"):
        fail(health, times=MOST_FAILURES - 1)
        assert health.problem() is None
        fail(health, times=3)
        problem = health.problem()
        assert problem is not None
        assert not problem.final
        assert "decode failed 7 times in a row, the last with RuntimeError: bad" in problem.message
        health.succeeded("decode")
        assert health.problem() is None
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert health.failures == 7


def test_a_success_of_another_kind_does_not_count(clock: Clock) -> None:
    """A prefill that works does not hide a decode that fails."""
    health = Health("the model", clock)
    fail(health)
    health.succeeded("prefill")
    assert health.problem() is not None


def test_successes_in_between_keep_it_healthy(clock: Clock) -> None:
    """Only failures in a row count."""
    health = Health("the model", clock)
    for _ in range(3 * MOST_FAILURES):
        health.failed("decode", BAD)
        health.succeeded("decode")
    assert health.problem() is None


def test_it_gets_work_again_until_the_problem_is_final(clock: Clock) -> None:
    """After RETRY_S without a failure there is no problem; failures that span FINAL_S are final."""
    health = Health("the model", clock)
    fail(health)
    clock.now += RETRY_S
    assert health.problem() is None
    health.failed("decode", BAD)
    problem = health.problem()
    assert problem is not None
    assert not problem.final
    clock.now += FINAL_S
    health.failed("decode", BAD)
    clock.now += 100 * RETRY_S
    problem = health.problem()
    assert problem is not None
    assert problem.final


def test_the_end_is_final(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """The end of a thread stays the problem whatever follows, and is logged once."""
    health = Health("the model", clock)
    health.ended(BAD)
    health.ended(ValueError("later"))
    health.succeeded("decode")
    assert health.problem() == ("the model has ended: RuntimeError: bad", True)
    assert len(caplog.records) == 1
