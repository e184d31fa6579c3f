"""Users of one device: which user waits for which, for how long, and what ends the wait."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from mosslive import Engine, EngineSettings, LanguageModel, Sampling
from mosslive.engine.device_priority import MAX_WAIT_S, DevicePriority, DeviceUser, may_run
from mosslive.engine.scheduler import Candidate, is_urgent
from tests.engine.models import fresh, prompt_rows, wandering_lm
from tests.engine.serving import ROOMY, Clock, Watched, until

wandering = pytest.fixture(scope="module")(wandering_lm)
ENDLESS = Sampling(max_new=40, min_new=41, ignored_audio="pad")


@pytest.mark.parametrize(
    ("urgent", "others", "waited_s", "goes"),
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
def test_the_rule(urgent: bool, others: bool, waited_s: float, goes: bool) -> None:
    """The table of the module: hurry goes, patience ends."""
    assert may_run(urgent, others, waited_s, 0.05) == goes


def test_patience_is_shorter_than_a_row_of_speech() -> None:
    """A user that is held back before every single row still speaks in real time."""
    assert MAX_WAIT_S < 0.08


@pytest.mark.parametrize(
    ("candidate", "urgent"),
    [
        (Candidate(1, "speech", 3, waiting_since=10.0), True),  # a reply waits for rows
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
    calm = Candidate(2, "speech", 0, waiting_since=10.0, spoken=50, playout_start=10.0)
    assert is_urgent([candidate], 10.0, EngineSettings()) == urgent
    assert is_urgent([calm, candidate], 10.0, EngineSettings()) == urgent
    assert not is_urgent([], 10.0, EngineSettings())


class Waiting:
    """A guest that gives way under a clock of its own; `news`: what happens while it rests."""

    def __init__(self, priority: DevicePriority, clock: Clock, *news: Callable[[], None]) -> None:
        self.device_user, self._clock = priority.join(lambda: self.rung.append(clock.now)), clock
        self.news, self.urgent, self.rung, self.rests = list(news), False, list[float](), 0

    def rest(self, most_s: float) -> None:
        self.rests += 1
        if self.news:
            self._clock.now += most_s / 10
            self.news.pop(0)()
        else:
            self._clock.now += most_s + 1e-9

    def go(self) -> float:
        """Returns how long it waited."""
        began = self._clock.now
        self.device_user.yield_device(lambda: self.urgent, self.rest)
        return self._clock.now - began


def company() -> tuple[DevicePriority, Clock, DeviceUser]:
    clock = Clock()
    priority = DevicePriority(0.05, clock)
    return priority, clock, priority.join(lambda: None)


def test_nobody_waits_longer_than_the_patience() -> None:
    """The wait ends after the patience, however long another user is urgent, and the next wait may
    be as long again."""
    priority, clock, other = company()
    one = Waiting(priority, clock)
    assert (one.go(), one.rests) == (0, 0)
    other.set_urgent(True)
    assert one.go() == pytest.approx(0.05)
    assert one.go() == pytest.approx(0.05)
    assert one.rests == 2
    other.set_urgent(False)
    assert one.go() == 0


def test_the_end_of_a_hurry_rings_whoever_waits() -> None:
    """The end of urgent work wakes the users that wait, and no others."""
    priority, clock, other = company()
    one = Waiting(priority, clock, lambda: other.set_urgent(False))
    other.set_urgent(True)
    assert one.go() == pytest.approx(0.005)
    assert one.rung == [clock.now]
    other.set_urgent(True)
    other.set_urgent(False)
    assert len(one.rung) == 1


def test_own_hurry_ends_the_waiting() -> None:
    """Urgent work of its own ends the wait of a user; other news does not."""
    priority, clock, other = company()
    one = Waiting(priority, clock, lambda: None, lambda: setattr(one, "urgent", True))
    other.set_urgent(True)
    assert one.go() < 0.01
    assert (one.rests, one.device_user._urgent) == (2, True)
    assert other.others_urgent


@pytest.mark.parametrize("how", ["says", "leaves", "fails"])
def test_no_hurry_stays_behind(how: str) -> None:
    """A user that has no work, is closed or failed while it checked holds back no other."""
    priority, clock, other = company()
    one = Waiting(priority, clock)
    one.urgent = True
    one.go()
    assert other.others_urgent

    def rotten() -> bool:
        raise ZeroDivisionError

    if how == "says":
        one.device_user.set_urgent(False)
    elif how == "leaves":
        one.device_user.leave()
        one.device_user.leave()
        assert priority.users == [other]
    else:
        with pytest.raises(ZeroDivisionError):
            one.device_user.yield_device(rotten, one.rest)
        one.device_user.leave()
    assert not other.others_urgent


def served(lm: LanguageModel) -> tuple[Engine, DeviceUser]:
    """An engine on a thread with a fixed clock and endless patience, and another user of its
    device."""
    priority = DevicePriority(max_wait_s=1e6)
    engine = Engine(
        Watched(fresh(lm).runner),
        lm.tokenizer,
        replace(ROOMY, first_rows=8),
        clock=Clock(),
        priority=priority,
    )
    return engine, priority.join(lambda: None)


def test_an_engine_holds_back_and_goes_on(wandering: LanguageModel) -> None:
    """The first rows of a reply come at once, more only when the other user is no longer urgent or
    another reply needs its first rows; the engine can be closed while it waits."""

    async def story() -> None:
        engine, other = served(wandering)
        other.set_urgent(True)
        talks = [engine.open() for _ in range(2)]
        for talk in talks:
            talk.append(prompt_rows(wandering, "text to speech"))
        one = talks[0].reply(ENDLESS)
        await until(lambda: len(one.rows) == 8 and engine.loop.device_user._waiting)
        two = talks[1].reply(ENDLESS)
        await until(lambda: len(two.rows) == 8 and engine.loop.device_user._waiting)
        assert 8 <= len(one.rows) <= 17
        other.set_urgent(False)
        await until(lambda: bool(one.stop and two.stop))
        assert (len(one.rows), len(two.rows)) == (40, 40)
        assert not other.others_urgent
        other.set_urgent(True)
        three = talks[0].reply(ENDLESS)
        await until(lambda: len(three.rows) == 8 and engine.loop.device_user._waiting)
        await asyncio.wait_for(engine.close(), 20)
        assert engine.priority.users == [other]

    asyncio.run(asyncio.wait_for(story(), 60))


def test_an_engine_that_breaks_holds_up_nobody(wandering: LanguageModel) -> None:
    """An engine that fails in an urgent step holds back no other user."""

    async def story() -> None:
        engine, other = served(wandering)

        class Gone(BaseException):
            pass

        def breaks(_: object) -> None:
            if other.others_urgent:
                raise Gone

        engine.loop.stepper.before = breaks  # type: ignore[attr-defined]
        talk = engine.open()
        talk.append(prompt_rows(wandering, "text to speech"))
        reply = talk.reply(ENDLESS)
        await until(lambda: engine.priority.users == [other])
        assert not reply.rows
        assert not other.others_urgent

    asyncio.run(asyncio.wait_for(story(), 60))
