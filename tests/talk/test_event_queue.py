"""Readers that stop or are slow: memory stays flat, no event is lost, and every stall is
reported."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mosslive import Engine, LanguageModel, MossliveError, Turn
from mosslive.talk import TalkSettings, events
from mosslive.talk.events import (
    PATIENCE_S,
    AudioChunk,
    ContextTrimmed,
    NotRead,
    ReplyDone,
    ReplyInterrupted,
    TalkFault,
    TimingReady,
)
from tests.engine.serving import ROOMY
from tests.talk.rig import CODES, RIG, FakeClock, Rig, Script, heap_bytes, run
from tests.talk.test_interruption import PUSH_TO_TALK
from tests.talk.toy import SAMPLES, TOY_VOICE, ToyCodec, toy_sound

RATE = ToyCodec.sample_rate
LONG = 1500  # codes: two minutes
LONG_REPLY = replace(
    PUSH_TO_TALK,
    sampling=replace(RIG.sampling, max_new=LONG, min_new=LONG + 1),
    unread_s=10.0,
    ahead_s=math.inf,
)


def long_rig(lm: LanguageModel, settings: TalkSettings = LONG_REPLY, reads: bool = False) -> Rig:
    """Replies of two minutes, generated at once."""
    clock = FakeClock()
    engine = Engine(Script(lm, [(1, 7)]), lm.tokenizer, ROOMY, clock=clock.now, threaded=False)
    rig = Rig(lm, ToyCodec(), TOY_VOICE, settings, engine=engine, clock=clock, reads=reads)
    rig.eager = True
    return rig


def kept_s(rig: Rig) -> tuple[float, float]:
    """Sound that waits for the reader, and sound of the reply that was not sent."""
    reply = rig.talk._controller.reply
    queued = reply.sound._queued if reply and reply.sound else 0
    return rig.talk._events._samples / RATE, queued / RATE


@pytest.mark.parametrize("lead_s", [None, math.inf, 0.5])
def test_a_reader_who_has_stopped(nano_lm: LanguageModel, lead_s: float | None) -> None:
    """Of a reply of two minutes at most the stated sound is kept; the reply then ends with a
    reason, the codec is free, the history is what was sent, and the conversation continues when
    events are read again."""

    async def story() -> None:
        rig = long_rig(nano_lm, replace(LONG_REPLY, lead_s=lead_s))
        talk = rig.talk
        talk.push_text("Hello")
        await rig.wait(PATIENCE_S - 1)
        assert rig.codec.open_replies == 1
        waiting_s, queued_s = kept_s(rig)
        assert 10 <= waiting_s < 10 + 10.1
        assert 30 <= queued_s < 30 + 10.1
        await rig.wait(10 + 2.5)
        assert not talk.replying
        assert rig.codec.open_replies == 0
        rig.read()
        await rig.settle()
        (fault,) = rig.of(TalkFault)
        assert rig.events[-1] is fault
        assert (fault.stage, fault.fatal) == ("reply", False)
        assert "Talk.events() was not read for 30 s" in fault.message
        sound = rig.sound()
        np.testing.assert_array_equal(sound, toy_sound([7] * LONG)[: len(sound)])
        said = Turn("assistant", codes=[7] * int(len(sound) / SAMPLES + 0.5))
        assert list(talk.turns[-1].rows) == nano_lm.format.turn(said)
        talk.push_text("And?")
        await rig.until(lambda: not talk.replying, most_s=200)
        assert len(rig.sound(2)) == LONG * SAMPLES
        await rig.close()
        assert rig.codec.open_replies == 0

    run(story())


def test_a_slow_reader_gets_everything(nano_lm: LanguageModel) -> None:
    """The reply waits for a reader with long pauses, and no event is lost."""

    async def story() -> None:
        rig = long_rig(nano_lm, replace(LONG_REPLY, lead_s=None))
        rig.talk.push_text("Hello")
        events = rig.talk.events()
        while not rig.of(TimingReady):
            rig.events.append(await anext(events))
            if len(rig.events) % 20 == 0:
                await rig.wait(PATIENCE_S - 1)
            else:
                await rig.settle()
            assert kept_s(rig)[0] < 10 + 10.1
        assert not rig.of(TalkFault)
        np.testing.assert_array_equal(rig.sound(), toy_sound([7] * LONG))
        starts = [event.first_sample for event in rig.of(AudioChunk)]
        assert starts == sorted(set(starts))
        await rig.close()

    run(story())


@pytest.mark.parametrize(
    "settings",
    [replace(PUSH_TO_TALK, unread_s=1e-6), replace(PUSH_TO_TALK, lead_s=0.02)],
    ids=["unread", "lead"],
)
def test_the_smallest_limits_stall_nothing(nano_lm: LanguageModel, settings: TalkSettings) -> None:
    """One piece of sound always fits, however small the limits are."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, settings)
        rig.talk.push_text("Hello")
        await rig.until(lambda: bool(rig.of(TimingReady)), 10)
        assert not rig.of(TalkFault)
        assert len(rig.sound()) == CODES * SAMPLES
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_held_back_reply_can_be_interrupted(nano_lm: LanguageModel) -> None:
    """A reply that waits for its reader ends at once when it is interrupted."""

    async def story() -> None:
        rig = long_rig(nano_lm, replace(LONG_REPLY, lead_s=None))
        rig.talk.push_text("Hello")
        await rig.settle()
        assert rig.talk.replying
        assert rig.talk.cancel()
        await rig.settle()
        assert rig.codec.open_replies == 0
        assert rig.talk._controller.queue.tasks == 0
        rig.read()
        await rig.settle()
        (cut,) = rig.of(ReplyInterrupted)
        assert cut.heard_codes == int(len(rig.sound()) / SAMPLES + 0.5)
        assert not rig.of(TalkFault)
        await rig.close()

    run(story())


def test_rendering_rests_while_much_sound_waits(nano_lm: LanguageModel) -> None:
    """A reply of two minutes in real time is at most half a minute ahead, has no underrun, is
    complete, and pauses do not count in the real-time factor."""

    async def story() -> None:
        rig = long_rig(nano_lm, reads=True)
        rig.talk.push_text("Hello")
        most_s = 0.0
        while not rig.of(ReplyDone):
            await rig.wait(0.5)
            most_s = max(most_s, kept_s(rig)[1])
        assert 29 < most_s < 41
        np.testing.assert_array_equal(rig.sound(), toy_sound([7] * LONG))
        await rig.settle()
        timing = rig.of(TimingReady)[0].timing
        assert timing.underruns == 0
        assert timing.rest_s > 60
        assert timing.rtf == pytest.approx(0, abs=1e-6)
        await rig.close()

    run(story())


def test_unread_events_are_bounded(nano_lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many unread events new requests raise an error that says what to do, active work can
    still be ended, and reading restores normal operation."""
    monkeypatch.setattr(events, "MOST_EVENTS", 200)

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, replace(PUSH_TO_TALK, reply="text"), reads=False)
        talk = rig.talk

        async def ask_on() -> None:
            for _ in range(200):
                talk.push_text("Hello")
                await rig.settle()

        with pytest.raises(NotRead, match=r"events wait unread; allowed: 200. Read Talk.events"):
            await ask_on()
        waiting = len(talk._events._waiting)
        assert waiting < 200 + 60
        for refused in (
            lambda: talk.push_audio(np.zeros(160, np.float32), 16_000),
            lambda: talk.say("user", "Hello"),
            lambda: talk.edit(list),
            talk.respond,
        ):
            with pytest.raises(NotRead):
                refused()
        talk.cancel()
        talk.clear()
        assert len(talk._events._waiting) <= waiting + 2
        rig.read()
        await rig.settle()
        talk.push_text("Hello")
        await rig.until(lambda: not talk.replying)
        last = [event for event in rig.events if not isinstance(event, ContextTrimmed)][-1]
        assert isinstance(last, TimingReady)
        await rig.close()
        rig.assert_clean()

    run(story())


def test_an_hour_without_a_reader_in_flat_memory(nano_lm: LanguageModel) -> None:
    """If events are never read, no more sound is kept after the first replies, and every refused
    call raises."""

    async def story() -> None:
        rig = long_rig(nano_lm, replace(LONG_REPLY, lead_s=None, context_rows=4000))
        sizes, refused = [], 0
        for turn in range(24):
            try:
                rig.talk.push_text("Hello")
            except MossliveError:
                refused += 1
            await rig.wait(150)
            assert not rig.talk.replying
            assert kept_s(rig)[0] < 20.1
            if turn % 6 == 5:
                sizes.append(heap_bytes())
        assert not refused, "twenty turns are not too many events"
        assert max(sizes[1:]) - sizes[1] < 100_000, sizes
        await rig.close()
        assert rig.codec.open_replies == 0

    run(story())


@pytest.mark.parametrize("unread_s", [0, -1.0, math.inf, math.nan])
def test_bad_limits(unread_s: float) -> None:
    """The error names the setting and its value."""
    with pytest.raises(MossliveError, match="unread_s is"):
        TalkSettings(unread_s=unread_s)
