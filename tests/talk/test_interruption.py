"""Interruption at every point: the history is what was heard, and nothing leaks."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from mosslive import LanguageModel, Turn
from mosslive.rows import Row
from mosslive.talk import TalkSettings
from mosslive.talk.events import (
    AudioChunk,
    ReplyDone,
    ReplyInterrupted,
    SpeechStarted,
    SpeechStopped,
    TalkFault,
    TextDelta,
    TimingReady,
)
from mosslive.talk.reply import LiveReply
from tests.codec.conftest import speech
from tests.talk.rig import CODES, RIG, Rig, frames, run
from tests.talk.toy import SAMPLES, TOY_VOICE, ToyCodec, toy_codes, toy_sound

PUSH_TO_TALK = replace(RIG, turns=None)
QUESTION = speech(0.4, 16_000)
ASKED = Turn("user", codes=toy_codes(torch.from_numpy(QUESTION), 16_000))
SYSTEM = Turn("system", text="Hi.")


def history(lm: LanguageModel, turns: list[Turn]) -> list[Row]:
    return [row for turn in turns for row in lm.format.turn(turn)]


def reply_of(lm: LanguageModel, turns: list[Turn]) -> list[int]:
    """The assistant's reply to these turns, by the plain loop."""
    made = lm.generate(lm.format.prompt(turns, "speech"), RIG.sampling)
    return [audio for _, audio in made]


async def asked(lm: LanguageModel, settings: TalkSettings = PUSH_TO_TALK) -> Rig:
    """A conversation at the moment its first turn ends."""
    rig = Rig(lm, ToyCodec(), TOY_VOICE, settings)
    await rig.say(QUESTION, 16_000)
    rig.talk.commit()
    return rig


def remembered(lm: LanguageModel, heard: int) -> list[Row]:
    codes = reply_of(lm, [SYSTEM, ASKED])[:heard]
    said = [Turn("assistant", codes=codes)] if heard else []
    return history(lm, [SYSTEM, ASKED, *said])


@pytest.mark.parametrize("steps", range(36))
def test_before_anything_is_heard(nano_lm: LanguageModel, steps: int) -> None:
    """A reply that is interrupted before any time passes, after any number of steps of engine and
    codec, was not heard: it leaves no turn, and pages, tasks and codec state are as after the
    question."""

    async def story() -> None:
        rig = await asked(nano_lm)
        for _ in range(steps):
            await rig.one_step()
        assert rig.talk.cancel()
        await rig.settle()
        assert rig.rows == remembered(nano_lm, 0)
        assert rig.of(ReplyInterrupted)[0].heard_codes == 0
        assert rig.codec.open_replies == 0
        assert not rig.talk.replying
        chunks = len(rig.of(AudioChunk))
        await rig.wait(1.0)
        assert len(rig.of(AudioChunk)) == chunks, "sound after the interruption"
        await rig.close()
        rig.assert_clean()

    run(story())


def test_between_two_passes_of_the_event_loop(nano_lm: LanguageModel) -> None:
    """A reply that is cancelled after any number of passes of the event loop, even before its own
    tasks have run, is an interruption and no fault."""

    async def story(passes: int) -> None:
        rig = await asked(nano_lm, replace(PUSH_TO_TALK, auto_reply=False))
        await rig.settle()
        rig.talk.respond()
        for _ in range(passes):
            await asyncio.sleep(0)
        assert rig.talk.cancel()
        await rig.settle()
        assert not rig.of(TalkFault), f"after {passes} passes"
        assert len(rig.of(ReplyInterrupted)) == 1
        assert rig.rows == remembered(nano_lm, 0)
        await rig.close()
        rig.assert_clean()

    for passes in range(8):
        run(story(passes))


POINTS: dict[str, Callable[[LiveReply, ToyCodec], bool]] = {
    "before the first code": lambda reply, toy: reply.begun,
    "in the first chunk": lambda reply, toy: reply._rows_read == 5,
    "in mid-chunk": lambda reply, toy: len(toy.speaking.sizes) == 2 and reply._rows_read < CODES,
    "after the last code": lambda reply, toy: reply._rows_read == CODES,
    "after the last sample": lambda reply, toy: (
        reply.sound is not None and reply.sound._all_rendered
    ),
}


@pytest.mark.parametrize("by", ["cancel", "speech"])
@pytest.mark.parametrize(
    ("point", "lead_s"),
    [
        (point, lead_s)
        for point in POINTS
        for lead_s in (None, 0.5)
        # With `lead_s=None` a reply is over when all sound is sent.
        if (point, lead_s) != ("after the last sample", None)
    ],
)
def test_every_point(nano_lm: LanguageModel, point: str, by: str, lead_s: float | None) -> None:
    """Right after the interruption pages, tasks and codec are those of what is remembered; and it
    is remembered as heard (`lead_s=None`: what was sent). Speech is then the next turn, from
    its first syllable."""
    ends = len(frames((0.64, True), (0.512, False)))
    wave = np.concatenate((frames((0.64, True), (0.512, False)), frames((0.32, True))))

    async def story() -> None:
        toy = ToyCodec()
        rig = Rig(nano_lm, toy, TOY_VOICE, replace(RIG, lead_s=lead_s))
        await rig.settle()
        rig.hold_engine = True
        await rig.say(wave[:ends], 16_000, 512)
        rig.hold_engine = False
        reply, pool = rig.talk._controller.reply, rig.served.lm.pool
        assert reply is not None
        while not POINTS[point](reply, toy):
            await rig.one_step()
            assert not rig.of(ReplyDone), "the point was passed"
        if by == "cancel":
            rig.talk.cancel()
        else:
            rig.talk.push_audio(wave[ends:], 16_000)
        asked = Turn("user", codes=toy_codes(torch.from_numpy(wave[:ends]), 16_000))
        await rig.settle()
        (heard,) = rig.of(ReplyInterrupted)
        expected = int(len(rig.sound()) / SAMPLES + 0.5) if lead_s is None else 0
        assert heard.heard_codes == expected
        said = reply_of(nano_lm, [SYSTEM, asked])[:expected]
        kept = [SYSTEM, asked, *([Turn("assistant", codes=said)] if said else [])]
        rows = history(nano_lm, kept)
        assert rig.rows[: len(rows)] == rows
        stats = rig.engine.stats()
        assert (stats.replies, stats.conversations) == (0, 1)
        assert pool.total - pool.free == -(-len(rig.rows) // pool.page_size)
        assert rig.codec.open_replies == 0
        assert rig.codec.open_turns == rig.talk._controller.queue.tasks == (by == "speech")
        if by == "cancel":
            assert rig.rows == rows
        else:
            await rig.say(frames((0.6, False)), 16_000, 512)
            next_turn = torch.from_numpy(np.concatenate((wave[ends:], frames((0.512, False)))))
            second = Turn("user", codes=toy_codes(next_turn, 16_000))
            assert list(rig.talk.turns[len(kept)].rows) == nano_lm.format.turn(second)
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize("heard_s", [0.02, 0.041, 0.1, 0.24, 0.53, 0.64, 1.0, 1.27, 1.55, 1.599])
def test_while_it_is_heard(nano_lm: LanguageModel, heard_s: float) -> None:
    """After an interruption at any time the history has the heard part only, to the nearest code,
    closed as the prompt format closes a turn."""
    heard = int(heard_s / 0.08 + 0.5)

    async def story() -> None:
        rig = await asked(nano_lm)
        await rig.wait(heard_s)
        assert rig.talk.cancel()
        await rig.settle()
        assert rig.of(ReplyInterrupted)[0].heard_codes == heard
        assert rig.rows == remembered(nano_lm, heard)
        assert [said.role for said in rig.talk.turns[2:]] == ["assistant"] * bool(heard)
        # The next reply is that of a conversation with this history.
        rig.talk.push_text("Go on")
        await rig.until(lambda: not rig.talk.replying)
        before = remembered(nano_lm, heard)
        prompt = before + nano_lm.format.prompt([Turn("user", text="Go on")], "speech")
        made = list(nano_lm.generate(prompt, RIG.sampling))
        assert rig.rows[: len(prompt) + CODES] == prompt + made
        np.testing.assert_array_equal(rig.sound(2), toy_sound([code for _, code in made]))
        await rig.close()
        rig.assert_clean()

    run(story())


def test_interrupted_after_all_was_sent(nano_lm: LanguageModel) -> None:
    """While the last sound still plays, a reply is done and then interrupted, remembered as heard,
    with one record."""

    async def story() -> None:
        rig = await asked(nano_lm)
        await rig.wait(CODES * 0.08 - 0.16)
        assert rig.of(ReplyDone)
        assert rig.talk.cancel()
        await rig.settle()
        assert rig.rows == remembered(nano_lm, CODES - 2)
        assert rig.of(ReplyInterrupted)[0].heard_codes == CODES - 2
        assert len(rig.of(TimingReady)) == 1
        await rig.close()
        rig.assert_clean()

    run(story())


def test_after_the_last_sample_nothing_is_interrupted(nano_lm: LanguageModel) -> None:
    """A reply heard to its end stays complete, and speech after it interrupts nothing."""

    async def story() -> None:
        rig = await asked(nano_lm)
        await rig.wait(CODES * 0.08 + 0.01)
        assert rig.of(ReplyDone)
        assert not rig.talk.cancel()
        await rig.settle()
        assert rig.rows == remembered(nano_lm, CODES)
        assert not rig.of(ReplyInterrupted)
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize("steps", [0, 1, 3, 10])
def test_a_text_reply_keeps_what_was_read(nano_lm: LanguageModel, steps: int) -> None:
    """For text, what was sent counts as read."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        rig.talk.push_text("Hello", reply="text")
        for _ in range(steps):
            await rig.one_step()
        rig.talk.cancel()
        await rig.settle()
        prompt = nano_lm.format.prompt([SYSTEM, Turn("user", text="Hello")], "text")
        made = list(nano_lm.generate(prompt, RIG.sampling))
        own = rig.rows[len(prompt) - 3 :]
        if own:
            read = own[3:-2]
            assert made[: len(read)] == read
            assert own[-2:] == nano_lm.format.footer()
            text = "".join(delta.text for delta in rig.of(TextDelta))
            assert text == nano_lm.read(read).text
        assert len(own) > 0 or steps < 3
        await rig.close()
        rig.assert_clean()

    run(story())


def test_speech_cuts_a_reply_off_and_is_heard_from_its_first_syllable(
    nano_lm: LanguageModel,
) -> None:
    """Barge-in: the interrupting words, pre-roll included, are the next turn."""
    first = frames((0.64, False), (0.96, True), (0.64, False))
    second = frames((0.64, True), (0.64, False))

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE)
        await rig.say(np.concatenate((first, second)), 16_000, packet=512)
        starts = [round(event.position_s * 16_000) for event in rig.of(SpeechStarted)]
        # Pre-roll of 0.3 s before the first loud frame; but not sound of the turn before.
        turn_end = len(frames((0.64, False), (0.96, True), (0.512, False)))
        assert starts == [round(0.64 * 31.25) * 512 - 4800, turn_end]
        stops = [round(event.position_s * 16_000) for event in rig.of(SpeechStopped)]
        assert stops[0] == len(frames((0.64, False), (0.96, True)))
        cut = rig.of(ReplyInterrupted)
        assert len(cut) == 1
        whole = torch.from_numpy(np.concatenate((first, second)))
        one = toy_codes(whole[starts[0] : turn_end], 16_000)
        two_end = len(first) + len(frames((0.64, True), (0.512, False)))
        two = toy_codes(whole[starts[1] : two_end], 16_000)
        said = reply_of(nano_lm, [SYSTEM, Turn("user", codes=one)])[: cut[0].heard_codes]
        assert 0 < len(said) < CODES
        turns = [Turn("user", codes=one), Turn("assistant", codes=said), Turn("user", codes=two)]
        rows = [row for said in rig.talk.turns[:4] for row in said.rows]
        assert rows == history(nano_lm, [SYSTEM, *turns])
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_user_who_continues_before_the_reply_sounds(nano_lm: LanguageModel) -> None:
    """If the user continues after a detected end, the reply leaves no trace, and the two halves are
    two turns of the user."""
    wave = frames((0.64, True), (0.512, False), (0.64, True), (0.64, False))

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE)
        rig.hold_engine = True  # no row of the reply exists when the user continues
        await rig.say(wave[: len(frames((0.64, True), (0.512, False), (0.32, True)))], 16_000, 512)
        rig.hold_engine = False
        await rig.say(wave[len(frames((0.64, True), (0.512, False), (0.32, True))) :], 16_000, 512)
        await rig.until(lambda: not rig.talk.replying)
        assert [event.turn for event in rig.of(ReplyDone)] == [2]
        assert [said.role for said in rig.talk.turns] == ["system", "user", "user", "assistant"]
        await rig.close()
        rig.assert_clean()

    run(story())


def test_without_barge_in_a_reply_is_heard_out(nano_lm: LanguageModel) -> None:
    """Without barge-in, speech during the reply is ignored and does not become a turn later."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, replace(RIG, barge_in=False))
        await rig.say(frames((0.64, True), (0.576, False)), 16_000, 512)
        await rig.say(frames((0.96, True), (0.32, False)), 16_000, 512)
        await rig.until(lambda: not rig.talk.replying)
        await rig.say(frames((0.96, False)), 16_000, 512)
        assert len(rig.of(SpeechStarted)) == len(rig.of(ReplyDone)) == 1
        assert len(rig.sound()) == CODES * SAMPLES
        await rig.close()
        rig.assert_clean()

    run(story())
