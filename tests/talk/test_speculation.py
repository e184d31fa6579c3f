"""A reply begun at the first pause: adopted if the turn was over, dropped without a trace if
not."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import LanguageModel, Turn
from mosslive.talk.events import (
    AudioChunk,
    ReplyDone,
    ReplyStarted,
    SpeechStarted,
    TalkFault,
    TimingReady,
)
from mosslive.talk.speculative_reply import SpeculationRoom
from tests.talk.rig import CODES, RIG, Rig, frames, run
from tests.talk.test_interruption import PUSH_TO_TALK, SYSTEM, history, reply_of
from tests.talk.toy import SAMPLES, TOY_VOICE, ToyCodec, toy_codes, toy_sound

SPECULATIVE = replace(RIG, speculate=True)
# Pauses are signalled after 7 silent frames (0.224 s), turns end after 16.
PAUSE, END = 7 * 0.032, 16 * 0.032


def test_a_speculative_reply_is_adopted_at_the_end_of_the_turn(nano_lm: LanguageModel) -> None:
    """The branch becomes the conversation: its turn ends at the pause, exactly like a turn of that
    sound offline; no event comes before the turn is over, and the first sound comes with it."""
    wave = frames((0.64, True), (END, False))

    async def story() -> None:
        rig = Rig(nano_lm, toy := ToyCodec(), TOY_VOICE, SPECULATIVE)
        await rig.say(wave[:-512], 16_000, 512)
        assert toy.speaking.sizes  # sound is rendered
        assert not rig.of(ReplyStarted)
        assert not rig.of(AudioChunk)
        await rig.say(wave[-512:], 16_000, 512)
        await rig.until(lambda: not rig.talk.replying)
        until = len(frames((0.64, True), (PAUSE, False)))
        heard = toy_codes(torch.from_numpy(wave[:until]), 16_000)
        asked = Turn("user", codes=heard)
        codes = reply_of(nano_lm, [SYSTEM, asked])
        assert rig.rows == history(nano_lm, [SYSTEM, asked, Turn("assistant", codes=codes)])
        np.testing.assert_array_equal(rig.sound(), toy_sound(codes))
        timing = rig.of(TimingReady)[0].timing
        assert timing.speculative
        assert timing.ttfa_s == 0
        assert timing.begun == pytest.approx(timing.turn_detected - (END - PAUSE))
        assert timing.codes_heard == len(heard)
        assert rig.served.engine.stats().conversations == 1
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_user_who_continues_gets_no_event(nano_lm: LanguageModel) -> None:
    """The speculative reply is dropped with its pages, and the turn is unchanged."""
    wave = frames((0.64, True), (0.32, False), (0.64, True), (END, False))

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, SPECULATIVE)
        resumed = len(frames((0.64, True), (0.32, False), (0.064, True)))
        await rig.say(wave[:resumed], 16_000, 512)
        await rig.settle()
        assert rig.codec.open_replies == 0
        assert rig.served.engine.stats().conversations == 1
        pages = rig.served.lm.pool
        assert pages.total - pages.free == -(-len(rig.rows) // pages.page_size)
        await rig.say(wave[resumed:], 16_000, 512)
        await rig.until(lambda: not rig.talk.replying)
        until = len(wave) - len(frames((END - PAUSE, False)))
        asked = Turn("user", codes=toy_codes(torch.from_numpy(wave[:until]), 16_000))
        codes = reply_of(nano_lm, [SYSTEM, asked])
        assert rig.rows == history(nano_lm, [SYSTEM, asked, Turn("assistant", codes=codes)])
        assert len(rig.of(ReplyStarted)) == len(rig.of(SpeechStarted)) == 1
        await rig.close()
        rig.assert_clean()

    run(story())


def test_failed_speculation_changes_nothing(nano_lm: LanguageModel) -> None:
    """If the codec fails during speculation, the turn gets an ordinary reply."""

    async def story() -> None:
        rig = Rig(nano_lm, toy := ToyCodec(), TOY_VOICE, SPECULATIVE)
        toy.speaking.fails_at = 1
        await rig.say(frames((0.64, True), (END + 0.064, False)), 16_000, 512)
        await rig.until(lambda: not rig.talk.replying)
        assert not rig.of(TalkFault)
        assert len(rig.of(ReplyDone)) == 1
        assert len(rig.sound()) == CODES * SAMPLES
        assert not rig.of(TimingReady)[0].timing.speculative
        await rig.close()
        rig.assert_clean()

    run(story())


def test_an_adopted_reply_can_be_interrupted(nano_lm: LanguageModel) -> None:
    """An adopted reply behaves like any other."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, SPECULATIVE)
        await rig.say(frames((0.64, True), (END, False)), 16_000, 512)
        await rig.wait(0.4)
        assert rig.talk.cancel()
        await rig.settle()
        assert len(rig.talk.turns) == 3
        kept = rig.talk.turns[2].rows
        codes = reply_of(nano_lm, [SYSTEM, Turn("user", codes=_codes(rig, nano_lm))])[:5]
        assert list(kept) == nano_lm.format.turn(Turn("assistant", codes=codes))
        await rig.close()
        rig.assert_clean()

    run(story())


def _codes(rig: Rig, lm: LanguageModel) -> list[int]:
    ids = lm.ids
    rows = rig.talk.turns[1].rows
    return [audio for text, audio in rows if text == ids.modality_pad and audio != ids.eosp]


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.integers(6, 30), st.lists(st.tuples(st.integers(7, 15), st.integers(4, 20)), max_size=2))
def test_speculation_changes_no_reply(
    nano_lm: LanguageModel, first: int, more: list[tuple[int, int]]
) -> None:
    """Whatever pauses a turn has, the adopted reply, its sound and its history are those of a
    conversation without speculation in which the turn ends at the last pause; replies that were
    dropped leave no page, no codec memory, no task and no event."""
    stretches = [(first, True)]
    for silence, speech in more:
        stretches += [(silence, False), (speech, True)]
    before = frames(*((count * 0.032, loud) for count, loud in stretches))
    wave = np.concatenate((before, frames((END, False))))
    until = len(before) + len(frames((PAUSE, False)))

    async def story() -> None:
        room = SpeculationRoom()
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, SPECULATIVE, room=room)
        await rig.say(before, 16_000, 512)
        assert room.running == 0
        assert (room.adopted, room.dropped) == (0, len(more))
        assert (rig.codec.open_turns, rig.codec.open_replies) == (1, 0)
        assert rig.codec.production.replies == 0
        assert [type(event) for event in rig.events] == [SpeechStarted]
        pages = rig.served.lm.pool
        assert pages.total - pages.free == -(-len(rig.rows) // pages.page_size)
        await rig.say(wave[len(before) :], 16_000, 512)
        await rig.until(lambda: not rig.talk.replying)
        assert room.adopted == 1
        assert rig.of(TimingReady)[0].timing.speculative
        plain = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        await plain.say(wave[:until], 16_000, 512)
        plain.talk.commit()
        await plain.until(lambda: not plain.talk.replying)
        assert rig.rows == plain.rows
        np.testing.assert_array_equal(rig.sound(), plain.sound())
        assert rig.of(ReplyDone) == plain.of(ReplyDone)
        for one in (rig, plain):
            await one.close()
            one.assert_clean()

    run(story())


def test_without_room_nothing_is_begun(nano_lm: LanguageModel) -> None:
    """Without room the turn gets its reply after its end; rooms count what runs."""

    async def story() -> None:
        asked: list[int] = []

        def fits(running: int) -> bool:
            asked.append(running)
            return False

        room = SpeculationRoom(fits)
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, SPECULATIVE, room=room)
        await rig.say(frames((0.64, True), (END, False)), 16_000, 512)
        await rig.until(lambda: not rig.talk.replying)
        assert asked == [0]
        assert not rig.of(TimingReady)[0].timing.speculative
        assert (room.running, room.adopted, room.dropped) == (0, 0, 0)
        await rig.close()

    run(story())


def test_new_settings_drop_a_speculative_reply(nano_lm: LanguageModel) -> None:
    """A reply begun with settings that have changed since is not given; the same settings again
    change nothing."""

    async def story() -> None:
        room = SpeculationRoom()
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, SPECULATIVE, room=room)
        await rig.say(frames((0.64, True), (PAUSE, False)), 16_000, 512)
        rig.talk.change(SPECULATIVE)
        assert room.running == 1
        short = replace(SPECULATIVE.sampling, max_new=10, min_new=11)
        rig.talk.change(replace(SPECULATIVE, sampling=short))
        assert room.running == 0
        await rig.say(frames((0.4, False)), 16_000, 512)
        await rig.until(lambda: not rig.talk.replying)
        assert rig.of(ReplyDone)[0].codes == 10
        await rig.close()
        rig.assert_clean()

    run(story())
