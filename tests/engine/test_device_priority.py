"""Device priority: which user of the device yields to which, how long, and what ends the wait."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from mosslive import Engine, EngineSettings, LanguageModel, Sampling
from mosslive.engine.device_priority import MAX_WAIT_S, DevicePriority, DeviceUser, may_run
from mosslive.engine.scheduler import Candidate, is_urgent
from tests.engine.models import fresh, prompt_rows, switching_lm
from tests.engine.serving import ROOMY, Clock, Watched, until

switching = pytest.fixture(scope="module")(switching_lm)
ENDLESS = Sampling(max_new=40, min_new=41, ignored_audio="pad")


@pytest.mark.parametrize(
    ("urgent", "others_urgent", "waited_s", "runs"),
    [
        (True, True, 0.0, True),
        (True, False, 0.0, True),
        (False, False, 0.0, True),
        (False, True, 0.0, False),
        (False, True, 0.049, False),
        (False, True, 0.05, True),
        (False, True, 9.0, True),
    ],
)
def test_when_a_user_may_run(
    urgent: bool, others_urgent: bool, waited_s: float, runs: bool
) -> None:
    """A user waits only if it is not urgent, another user is, and the longest wait is not over."""
    assert may_run(urgent, others_urgent, waited_s, 0.05) == runs


def test_the_longest_wait_is_shorter_than_a_row_of_speech() -> None:
    """A user that waits before every row still produces speech in real time."""
    assert MAX_WAIT_S < 0.08


@pytest.mark.parametrize(
    ("candidate", "urgent"),
    [
        (Candidate(1, "speech", 3, waiting_since=10.0), True),  # waits for rows
        (Candidate(1, "speech", 0, waiting_since=10.0), True),  # its first row
        (
            Candidate(1, "speech", 0, waiting_since=10.0, spoken=7, playout_start=10.0),
            True,
        ),  # no sound yet
        (
            Candidate(1, "speech", 0, waiting_since=10.0, spoken=8, playout_start=10.0),
            False,
        ),  # four rows ahead
        (
            Candidate(1, "speech", 0, waiting_since=10.0, spoken=8, playout_start=9.68),
            True,
        ),  # they are used up
        (Candidate(1, "listening", 2, waiting_since=9.9), False),
        (Candidate(1, "listening", 2, waiting_since=9.7), True),
        (Candidate(1, "text", 5, waiting_since=10.0), True),
        (Candidate(1, "text", 0, waiting_since=9.9), False),
        (Candidate(1, "text", 0, waiting_since=9.4), True),
    ],
)
def test_when_a_step_is_urgent(candidate: Candidate, urgent: bool) -> None:
    """A step is urgent if it is due by the scheduler's rule, or if it computes speech before the
    first sound."""
    not_urgent = Candidate(2, "speech", 0, waiting_since=10.0, spoken=50, playout_start=10.0)
    assert is_urgent([candidate], 10.0, EngineSettings()) == urgent
    assert is_urgent([not_urgent, candidate], 10.0, EngineSettings()) == urgent
    assert not is_urgent([], 10.0, EngineSettings())


class YieldingUser:
    """A user with a clock that moves only while it waits; `events` happen during its waits."""

    def __init__(self, priority: DevicePriority, clock: Clock, *events: Callable[[], None]) -> None:
        self.device_user, self._clock = (
            priority.join(lambda: self.woken_at.append(clock.now)),
            clock,
        )
        self.events, self.urgent, self.woken_at, self.waits = list(events), False, list[float](), 0

    def wait(self, timeout_s: float) -> None:
        self.waits += 1
        if self.events:
            self._clock.now += timeout_s / 10
            self.events.pop(0)()
        else:
            self._clock.now += timeout_s + 1e-9

    def yield_device(self) -> float:
        """Returns how long it waited."""
        began = self._clock.now
        self.device_user.yield_device(lambda: self.urgent, self.wait)
        return self._clock.now - began


def two_users() -> tuple[DevicePriority, Clock, DeviceUser]:
    clock = Clock()
    priority = DevicePriority(0.05, clock)
    return priority, clock, priority.join(lambda: None)


def test_no_wait_is_longer_than_the_limit() -> None:
    """A wait ends after `max_wait_s`, however long another user is urgent; the next wait may be as
    long again."""
    priority, clock, other = two_users()
    one = YieldingUser(priority, clock)
    assert (one.yield_device(), one.waits) == (0, 0)
    other.set_urgent(True)
    assert one.yield_device() == pytest.approx(0.05)
    assert one.yield_device() == pytest.approx(0.05)
    assert one.waits == 2
    other.set_urgent(False)
    assert one.yield_device() == 0


def test_the_end_of_urgent_work_wakes_waiting_users() -> None:
    """The end of urgent work wakes the users that wait, and no others."""
    priority, clock, other = two_users()
    one = YieldingUser(priority, clock, lambda: other.set_urgent(False))
    other.set_urgent(True)
    assert one.yield_device() == pytest.approx(0.005)
    assert one.woken_at == [clock.now]
    other.set_urgent(True)
    other.set_urgent(False)
    assert len(one.woken_at) == 1


def test_own_urgent_work_ends_the_wait() -> None:
    """Urgent work of its own ends the wait of a user; other events do not."""
    priority, clock, other = two_users()
    one = YieldingUser(priority, clock, lambda: None, lambda: setattr(one, "urgent", True))
    other.set_urgent(True)
    assert one.yield_device() < 0.01
    assert (one.waits, one.device_user._urgent) == (2, True)
    assert other.others_urgent


@pytest.mark.parametrize("how", ["has no work", "leaves", "fails"])
def test_a_user_without_work_is_not_urgent(how: str) -> None:
    """A user that has no work, has left or has failed makes no other user wait."""
    priority, clock, other = two_users()
    one = YieldingUser(priority, clock)
    one.urgent = True
    one.yield_device()
    assert other.others_urgent

    def fails() -> bool:
        raise ZeroDivisionError

    if how == "has no work":
        one.device_user.set_urgent(False)
    elif how == "leaves":
        one.device_user.leave()
        one.device_user.leave()
        assert priority.users == [other]
    else:
        with pytest.raises(ZeroDivisionError):
            one.device_user.yield_device(fails, one.wait)
        one.device_user.leave()
    assert not other.others_urgent


def served(lm: LanguageModel) -> tuple[Engine, DeviceUser]:
    """Returns an engine on a thread, with a fixed clock and no limit on waits, and another user of
    its device."""
    priority = DevicePriority(max_wait_s=1e6)
    engine = Engine(
        Watched(fresh(lm).runner),
        lm.tokenizer,
        replace(ROOMY, first_rows=8),
        clock=Clock(),
        priority=priority,
    )
    return engine, priority.join(lambda: None)


def test_an_engine_yields_and_continues(switching: LanguageModel) -> None:
    """The first rows of a reply come at once, more only when the other user is no longer urgent or
    another reply needs its first rows; the engine can be closed while it waits."""

    async def main() -> None:
        engine, other = served(switching)
        other.set_urgent(True)
        conversations = [engine.open() for _ in range(2)]
        for conversation in conversations:
            conversation.append(prompt_rows(switching, "text to speech"))
        one = conversations[0].reply(ENDLESS)
        await until(lambda: len(one.rows) == 8 and engine.loop.device_user._waiting)
        two = conversations[1].reply(ENDLESS)
        await until(lambda: len(two.rows) == 8 and engine.loop.device_user._waiting)
        assert 8 <= len(one.rows) <= 17
        other.set_urgent(False)
        await until(lambda: bool(one.stop and two.stop))
        assert (len(one.rows), len(two.rows)) == (40, 40)
        assert not other.others_urgent
        other.set_urgent(True)
        three = conversations[0].reply(ENDLESS)
        await until(lambda: len(three.rows) == 8 and engine.loop.device_user._waiting)
        await asyncio.wait_for(engine.close(), 20)
        assert engine.priority.users == [other]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_an_engine_that_fails_makes_no_user_wait(switching: LanguageModel) -> None:
    """An engine that fails in an urgent step leaves the device to the other users."""

    async def main() -> None:
        engine, other = served(switching)

        class Fatal(BaseException):
            pass

        def breaks(_: object) -> None:
            if other.others_urgent:
                raise Fatal

        engine.loop.stepper.before = breaks  # type: ignore[attr-defined]
        conversation = engine.open()
        conversation.append(prompt_rows(switching, "text to speech"))
        reply = conversation.reply(ENDLESS)
        await until(lambda: engine.priority.users == [other])
        assert not reply.rows
        assert not other.others_urgent

    asyncio.run(asyncio.wait_for(main(), 60))
