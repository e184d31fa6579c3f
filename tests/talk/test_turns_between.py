"""Turns and replies that calls add between spoken turns, and edits, keep their order."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from mosslive import LanguageModel, Turn
from mosslive.codec import Sound
from mosslive.errors import MossliveError
from mosslive.talk import FixedSilence, TalkSettings, TurnSettings
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import (
    AudioChunk,
    ReplyDone,
    ReplyInterrupted,
    ReplyStarted,
    SpeechStarted,
    SpeechStopped,
    TalkFault,
    TimingReady,
    TurnDetected,
)
from tests.talk.rig import RIG, Rig, frames, run
from tests.talk.test_interruption import ASKED, PUSH_TO_TALK, QUESTION, SYSTEM, history, reply_of
from tests.talk.toy import TOY_VOICE, ToyCodec, toy_codes

NO_REPLY = replace(PUSH_TO_TALK, auto_reply=False)
NOTE = Turn("user", text="By the way.")


def without(turn: int) -> Callable[[list[HistoryTurn]], list[HistoryTurn]]:
    def change(turns: list[HistoryTurn]) -> list[HistoryTurn]:
        return [said for said in turns if said.turn != turn]

    return change


def rig_of(lm: LanguageModel, settings: TalkSettings = PUSH_TO_TALK) -> Rig:
    return Rig(lm, ToyCodec(), TOY_VOICE, settings)


async def end(rig: Rig, turns: list[Turn], lm: LanguageModel) -> None:
    """Nothing is pending, nothing failed, and the history is this."""
    await rig.settle()
    assert not rig.of(TalkFault)
    assert rig.rows == history(lm, turns)
    assert [row for said in rig.talk.turns for row in said.rows] == rig.rows
    await rig.close()
    rig.assert_clean()


def test_turns_without_a_reply(nano_lm: LanguageModel) -> None:
    """Turns without a reply, of both roles, keep their order and numbers, and `respond` replies to
    them with a number of its own."""
    wave = Sound(torch.from_numpy(QUESTION), 16_000)

    async def story() -> None:
        rig = rig_of(nano_lm)
        talk = rig.talk
        numbers = [talk.say("user", "By the way."), talk.say("assistant", "Yes?")]
        numbers.append(talk.say("user", wave))
        await rig.settle()
        assert numbers == [1, 2, 3]
        assert not talk.replying
        assert [said.turn for said in talk.turns] == [0, 1, 2, 3]
        assert talk.respond() == 4
        await rig.until(lambda: not talk.replying)
        assert rig.of(ReplyDone)[0].turn == talk.turns[-1].turn == 4
        said = [SYSTEM, NOTE, Turn("assistant", text="Yes?"), ASKED]
        codes = reply_of(nano_lm, said)
        await end(rig, [*said, Turn("assistant", codes=codes)], nano_lm)

    run(story())


@pytest.mark.parametrize("heard_s", [0.0, 0.8])
def test_said_during_a_reply_that_is_cancelled(nano_lm: LanguageModel, heard_s: float) -> None:
    """A turn added during a reply follows what was heard of it."""

    async def story() -> None:
        rig = rig_of(nano_lm)
        await rig.say(QUESTION, 16_000)
        rig.talk.commit()
        await rig.settle()
        await rig.wait(heard_s)
        rig.talk.say("user", "By the way.")
        await rig.settle()
        assert rig.talk.cancel()
        heard = reply_of(nano_lm, [SYSTEM, ASKED])[: round(heard_s / 0.08)]
        reply = [Turn("assistant", codes=heard)] if heard else []
        await end(rig, [SYSTEM, ASKED, *reply, NOTE], nano_lm)

    run(story())


def test_said_while_the_user_speaks_a_turn_that_is_cleared(nano_lm: LanguageModel) -> None:
    """The cleared turn leaves no trace, and turns added meanwhile stay."""

    async def story() -> None:
        rig = rig_of(nano_lm)
        await rig.say(QUESTION, 16_000)
        rig.talk.say("user", "By the way.")
        await rig.settle()
        rig.talk.clear()
        await end(rig, [SYSTEM, NOTE], nano_lm)

    run(story())


def test_said_during_speculation(nano_lm: LanguageModel) -> None:
    """A turn added during speculation follows the adopted reply."""
    wave = frames((0.64, True), (0.512, False))

    async def story() -> None:
        rig = rig_of(nano_lm, replace(RIG, speculate=True))
        before = len(frames((0.64, True), (0.192, False)))
        await rig.say(wave[:before], 16_000, 512)
        rig.hold_engine = True  # so that the reply has begun, no more, when it is adopted
        rig.talk.say("user", "By the way.")
        await rig.say(wave[before:], 16_000, 512)
        assert rig.talk.replying
        rig.hold_engine = False
        await rig.until(lambda: not rig.talk.replying)
        await rig.settle()
        assert rig.of(TimingReady)[0].timing.speculative
        until = len(frames((0.64, True), (0.224, False)))
        asked = Turn("user", codes=toy_codes(torch.from_numpy(wave[:until]), 16_000))
        codes = reply_of(nano_lm, [SYSTEM, asked])
        await end(rig, [SYSTEM, asked, Turn("assistant", codes=codes), NOTE], nano_lm)

    run(story())


def test_spoken_during_a_reply_that_is_not_interrupted_but_cancelled(
    nano_lm: LanguageModel,
) -> None:
    """A turn spoken during a reply without barge-in follows it, also if the reply is cancelled."""
    settings = replace(NO_REPLY, barge_in=False)

    async def story() -> None:
        rig = rig_of(nano_lm, settings)
        rig.talk.say("user", "By the way.")
        rig.talk.respond()
        await rig.settle()
        await rig.wait(0.4)
        await rig.say(QUESTION, 16_000)  # 0.4 s
        assert rig.talk.listening
        assert rig.talk.replying
        assert rig.talk.cancel()
        await rig.settle()
        rig.talk.commit()
        codes = reply_of(nano_lm, [SYSTEM, NOTE])[:10]
        await end(rig, [SYSTEM, NOTE, Turn("assistant", codes=codes), ASKED], nano_lm)

    run(story())


def test_an_added_turn_does_not_change_the_number_of_a_spoken_turn(
    nano_lm: LanguageModel,
) -> None:
    """A turn ends, and gets its reply, under the number it began with."""

    async def story() -> None:
        rig = rig_of(nano_lm)
        await rig.say(QUESTION, 16_000)
        assert rig.talk.say("user", "By the way.") == 2
        rig.talk.commit()
        await rig.until(lambda: not rig.talk.replying)
        found = rig.of(SpeechStarted) + rig.of(SpeechStopped) + rig.of(TurnDetected)
        assert [one.turn for one in found] == [1, 1, 1]
        assert [one.turn for one in rig.of(ReplyDone)] == [1]
        await rig.close()

    run(story())


def test_a_text_too_long_for_the_context(nano_lm: LanguageModel) -> None:
    """A text too long for the context gives an error, gets no reply and no turn, and the
    conversation continues."""

    async def story() -> None:
        rig = rig_of(nano_lm, replace(PUSH_TO_TALK, context_rows=128))
        rig.talk.push_text("too long " * 200)
        await rig.settle()
        (fault,) = rig.of(TalkFault)
        assert (fault.turn, fault.stage, fault.fatal) == (1, "memory", False)
        assert not rig.talk.replying
        assert not rig.of(ReplyStarted)
        assert rig.rows == history(nano_lm, [SYSTEM])
        rig.talk.push_text("By the way.")
        await rig.until(lambda: not rig.talk.replying)
        assert [one.turn for one in rig.of(ReplyDone)] == [2]
        await rig.close()
        rig.assert_clean()

    run(story())


def test_faults_carry_the_number_of_what_failed(nano_lm: LanguageModel) -> None:
    """The error of a turn that cannot be appended during another's reply has the number of that
    turn."""

    async def story() -> None:
        rig = rig_of(nano_lm, replace(PUSH_TO_TALK, context_rows=128))
        rig.talk.push_text("By the way.")
        await rig.settle()
        assert rig.talk.say("user", "too long " * 200) == 2
        await rig.until(lambda: not rig.talk.replying)
        await asyncio.wait_for(rig.talk.settled(), 20)  # a thread tokenises a long text
        await rig.settle()
        assert [(one.turn, one.stage) for one in rig.of(TalkFault)] == [(2, "memory")]
        assert [one.turn for one in rig.of(ReplyDone)] == [1]
        await rig.close()

    run(story())


def test_auto_reply_off(nano_lm: LanguageModel) -> None:
    """With auto_reply=False the end of the turn is reported, no reply begins, and `respond`
    requests one."""

    async def story() -> None:
        rig = rig_of(nano_lm, NO_REPLY)
        await rig.say(QUESTION, 16_000)
        assert rig.talk.commit()
        await rig.wait(1.0)
        assert rig.of(TurnDetected)
        assert not rig.of(ReplyStarted)
        assert (await rig.talk.settled())[-1].turn == 1
        assert rig.talk.respond("text") == 2
        await rig.until(lambda: not rig.talk.replying)
        assert [one.turn for one in rig.of(ReplyStarted)] == [2]
        assert not rig.of(AudioChunk)
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize("spoken", [False, True])
def test_edits(nano_lm: LanguageModel, spoken: bool) -> None:
    """A turn can be removed while no one speaks and while the user speaks; the open turn stays."""

    async def story() -> None:
        rig = rig_of(nano_lm, NO_REPLY)
        number = rig.talk.say("user", "Forget me.")
        rig.talk.say("user", "By the way.")
        await rig.settle()
        if spoken:
            await rig.say(QUESTION, 16_000)
        rig.talk.edit(without(number))
        await rig.settle()
        rig.talk.commit()
        await end(rig, [SYSTEM, NOTE, *([ASKED] if spoken else [])], nano_lm)

    run(story())


@pytest.mark.parametrize("first", ["said", "spoken"])
def test_an_edit_sees_what_was_said_before_it(nano_lm: LanguageModel, first: str) -> None:
    """A turn added just before or while the user speaks can be removed again at once."""

    async def story() -> None:
        rig = rig_of(nano_lm, NO_REPLY)
        if first == "spoken":
            await rig.say(QUESTION, 16_000)
        number = rig.talk.say("user", Sound(torch.from_numpy(QUESTION), 16_000))
        if first == "said":
            rig.talk.push_audio(QUESTION, 16_000)
        rig.talk.edit(without(number))
        await rig.settle()
        rig.talk.commit()
        await end(rig, [SYSTEM, ASKED], nano_lm)

    run(story())


def test_an_edit_that_cannot_be(nano_lm: LanguageModel) -> None:
    """An edit during a reply is refused, and a failed edit is reported and changes nothing."""

    async def story() -> None:
        rig = rig_of(nano_lm)
        rig.talk.push_text("By the way.")
        with pytest.raises(MossliveError, match="cancel it first"):
            rig.talk.edit(without(1))
        rig.talk.cancel()
        await rig.settle()

        def wrong(turns: list[HistoryTurn]) -> list[HistoryTurn]:
            raise MossliveError("no such turn")

        rig.talk.edit(wrong)
        await rig.settle()
        (fault,) = rig.of(TalkFault)
        assert (fault.stage, fault.message, fault.fatal) == ("memory", "no such turn", False)
        assert rig.rows == history(nano_lm, [SYSTEM, NOTE])
        await rig.close()
        rig.assert_clean()

    run(story())


def test_changed_settings_hold_from_the_next_turn_on(nano_lm: LanguageModel) -> None:
    """A change in mid-turn leaves this turn to the old rule and the next to the new one, and keeps
    the history."""
    slow = replace(RIG, turns=TurnSettings(end=FixedSilence(1.0)), reply="text")

    async def story() -> None:
        rig = rig_of(nano_lm, RIG)
        await rig.say(frames((0.64, True)), 16_000)
        rig.talk.change(slow)
        await rig.say(frames((0.512, False)), 16_000)
        assert [one.turn for one in rig.of(TurnDetected)] == [1]
        assert rig.of(ReplyStarted)[0].kind == "text"
        await rig.until(lambda: not rig.talk.replying)
        await rig.say(frames((0.64, True), (0.512, False)), 16_000)
        assert len(rig.of(TurnDetected)) == 1
        await rig.say(frames((0.512, False)), 16_000)
        assert [one.turn for one in rig.of(TurnDetected)] == [1, 2]
        starts = [one.position_s for one in rig.of(SpeechStarted)]
        assert starts[1] > 1.0, "positions go on counting from the first sample"
        await rig.close()
        rig.assert_clean()

    run(story())


def test_no_more_barge_in_while_a_turn_is_heard(nano_lm: LanguageModel) -> None:
    """A turn in progress during a reply is heard to its end after barge-in is disabled."""

    async def story() -> None:
        rig = rig_of(nano_lm, replace(RIG, auto_reply=False, barge_in=False))
        rig.talk.say("user", "By the way.")
        rig.talk.respond()
        await rig.settle()
        await rig.say(frames((0.64, True)), 16_000)
        assert rig.talk.listening
        rig.talk.change(replace(RIG, barge_in=False))
        await rig.say(frames((0.64, False)), 16_000)
        assert [one.turn for one in rig.of(TurnDetected)] == [3]
        await rig.until(lambda: not rig.talk.replying)
        assert not rig.of(ReplyInterrupted)
        assert [said.role for said in rig.talk.turns[1:]][:3] == ["user", "assistant", "user"]
        await rig.close()
        rig.assert_clean()

    run(story())
