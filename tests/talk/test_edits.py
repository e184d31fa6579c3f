"""Turns without a reply, edits of the history, and changes of settings."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from mosslive import LanguageModel, MossliveError, Turn
from mosslive.codec import Sound
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import (
    ContextTrimmed,
    ReplyDone,
    ReplyInterrupted,
    ReplyStarted,
    SpeechStarted,
    TalkFault,
    TurnDetected,
)
from tests.talk.rig import RIG, Rig, frames, run
from tests.talk.test_interruption import ASKED, PUSH_TO_TALK, QUESTION, SYSTEM, history, reply_of
from tests.talk.toy import TOY_VOICE, ToyCodec

NO_REPLY = replace(RIG, auto_reply=False)


def test_a_turn_without_a_reply(nano_lm: LanguageModel) -> None:
    """With `auto_reply=False` the turn joins the history without a reply; `respond` then gives the
    reply that would have come."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, replace(PUSH_TO_TALK, auto_reply=False))
        await rig.say(QUESTION, 16_000)
        assert rig.talk.commit()
        await rig.wait(1.0)
        assert rig.of(TurnDetected)
        assert not rig.of(ReplyStarted)
        assert rig.rows == history(nano_lm, [SYSTEM, ASKED])
        number = rig.talk.respond()
        await rig.until(lambda: bool(rig.of(ReplyDone)))
        assert rig.of(ReplyDone)[0].turn == number == 2
        answer = Turn("assistant", codes=reply_of(nano_lm, [SYSTEM, ASKED]))
        assert rig.rows == history(nano_lm, [SYSTEM, ASKED, answer])
        assert [said.turn for said in rig.talk.turns] == [0, 1, 2]
        await rig.close()
        rig.assert_clean()

    run(story())


def test_speech_that_may_not_interrupt_is_heard_afterwards(nano_lm: LanguageModel) -> None:
    """Without replies and interruption, speech during a reply follows it in the history."""

    async def story() -> None:
        settings = replace(NO_REPLY, barge_in=False)
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, settings)
        rig.talk.say("user", "Hello")
        rig.talk.respond()
        await rig.settle()
        await rig.say(frames((0.4, True), (0.7, False)), 16_000)
        await rig.until(lambda: not rig.talk.replying)
        await rig.settle()
        assert len(rig.of(SpeechStarted)) == 1
        assert not rig.of(ReplyInterrupted)
        assert [said.role for said in rig.talk.turns[1:]] == ["user", "assistant", "user"]
        await rig.close()
        rig.assert_clean()

    run(story())


def test_said_in_order(nano_lm: LanguageModel) -> None:
    """`say` adds text and sound of either role in order, and its sound counts as heard."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        talk = rig.talk
        numbers = [
            talk.say("user", "One"),
            talk.say("user", Sound(torch.from_numpy(QUESTION), 16_000)),
            talk.say("assistant", "Yes"),
        ]
        await rig.settle()
        assert numbers == [1, 2, 3]
        turns = [SYSTEM, Turn("user", text="One"), ASKED, Turn("assistant", text="Yes")]
        assert rig.rows == history(nano_lm, turns)
        with pytest.raises(MossliveError, match="sample_rate is 1"):
            talk.say("user", Sound(torch.zeros(9), 1))
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize("while_listening", [False, True])
def test_edits(nano_lm: LanguageModel, while_listening: bool) -> None:
    """After `edit` the history is as if it had always been so, also while the next turn is being
    heard, and unused pages are free."""

    def without_first(turns: list[HistoryTurn]) -> Sequence[HistoryTurn]:
        return [said for said in turns if said.turn != 1]

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, replace(PUSH_TO_TALK, auto_reply=False))
        rig.talk.say("user", "One")
        rig.talk.say("user", "Two")
        await rig.settle()
        if while_listening:
            await rig.say(QUESTION, 16_000)
        rig.talk.edit(without_first)
        await rig.settle()
        if not while_listening:
            await rig.say(QUESTION, 16_000)
        rig.talk.commit()
        await rig.settle()
        assert rig.rows == history(nano_lm, [SYSTEM, Turn("user", text="Two"), ASKED])
        rig.talk.edit(lambda turns: [])
        await rig.settle()
        assert rig.rows == []
        await rig.close()
        rig.assert_clean()

    run(story())


def test_edits_wait_for_the_reply(nano_lm: LanguageModel) -> None:
    """During a reply an edit is refused; after an interruption it sees what was heard."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        await rig.say(QUESTION, 16_000)
        rig.talk.commit()
        await rig.wait(0.5)
        with pytest.raises(MossliveError, match="a reply is being given"):
            rig.talk.edit(lambda turns: turns)
        seen: list[str] = []

        def look(turns: list[HistoryTurn]) -> list[HistoryTurn]:
            seen.extend(said.role for said in turns)
            return turns

        rig.talk.cancel()
        rig.talk.edit(look)
        await rig.settle()
        assert seen == ["system", "user", "assistant"]
        await rig.close()
        rig.assert_clean()

    run(story())


def test_settings_change_between_turns(nano_lm: LanguageModel) -> None:
    """`change` applies new turn settings from the next turn on, and positions continue."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, NO_REPLY)
        await rig.say(frames((0.4, True), (0.7, False)), 16_000)
        rig.talk.change(replace(rig.talk.settings, turns=None))
        await rig.say(QUESTION, 16_000)
        assert rig.talk.listening
        assert rig.talk.commit()
        await rig.settle()
        first, second = rig.of(SpeechStarted)
        assert first.position_s == 0
        assert second.position_s == pytest.approx(len(frames((1.1, False))) / 16_000, abs=0.05)
        assert [said.role for said in await rig.talk.settled()] == ["system", "user", "user"]
        await rig.close()
        rig.assert_clean()

    run(story())


def test_edits_stay_within_the_context(nano_lm: LanguageModel) -> None:
    """An edit that makes the history longer than the context drops the oldest turns; one whose
    system turn alone is too long fails and changes nothing."""

    def system_of(words: int) -> HistoryTurn:
        rows = nano_lm.format.turn(Turn("system", text="word " * words))
        return HistoryTurn("system", "text", tuple(rows))

    async def story() -> None:
        settings = replace(PUSH_TO_TALK, auto_reply=False, context_rows=200)
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, settings)
        for _ in range(6):
            rig.talk.say("user", "one two three")
        await rig.settle()
        before = len(rig.talk.turns)
        medium = system_of(40)
        rig.talk.edit(lambda turns: [medium, *turns[1:]])
        await rig.settle()
        assert rig.talk.turns[0] is medium
        assert len(rig.talk.turns) < before
        assert rig.of(ContextTrimmed)
        assert len(rig.rows) <= 200
        kept, long = rig.rows, system_of(200)
        rig.talk.edit(lambda turns: [long, *turns[1:]])
        await rig.settle()
        assert "too long" in rig.of(TalkFault)[0].message
        assert rig.rows == kept
        await rig.close()
        rig.assert_clean()

    run(story())
