"""Failures in the middle of a conversation: the user gets an error and can continue."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from mosslive import LanguageModel, MossliveError, Turn
from mosslive.cache import PageTable
from mosslive.talk.events import ReplyDone, ReplyStarted, TalkFault
from tests.codec.conftest import speech
from tests.engine.serving import ROOMY
from tests.talk.rig import CODES, RIG, Rig, run
from tests.talk.test_interruption import PUSH_TO_TALK, QUESTION, asked, remembered
from tests.talk.toy import SAMPLES, TOY_VOICE, ToyCodec


async def goes_on(rig: Rig) -> None:
    """Another question gets its complete reply."""
    done = len(rig.of(ReplyDone))
    await rig.say(QUESTION, 16_000)
    rig.talk.commit()
    await rig.until(lambda: not rig.talk.replying)
    assert len(rig.of(ReplyDone)) == done + 1
    assert len(rig.sound(rig.of(ReplyDone)[-1].turn)) == CODES * SAMPLES


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_codec_that_fails_in_mid_reply(nano_lm: LanguageModel, step: int) -> None:
    """If the codec fails before or after the first sound, the error is reported, the history is
    what was sent, the codec's memory is free, and the next turn gets its reply."""

    async def story() -> None:
        rig = Rig(nano_lm, toy := ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        toy.speaking.fails_at = step
        await rig.say(QUESTION, 16_000)
        rig.talk.commit()
        await rig.settle()
        await rig.until(lambda: not rig.talk.replying)
        assert [(fault.stage, fault.fatal) for fault in rig.of(TalkFault)] == [("reply", False)]
        assert "the toy broke" in rig.of(TalkFault)[0].message
        sent_codes = len(rig.sound()) / SAMPLES
        assert rig.rows == remembered(nano_lm, int(sent_codes + 0.5))
        assert rig.codec.open_replies == 0
        await goes_on(rig)
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize("call", ["add", "push", "end"])
def test_a_codec_that_fails_at_the_ends_of_a_reply(nano_lm: LanguageModel, call: str) -> None:
    """A failure when a reply is opened, given codes or finished is reported, and the conversation
    stays usable."""

    async def story() -> None:
        rig = Rig(nano_lm, toy := ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        real = getattr(toy.speaking, call)

        def breaks(*given: Any) -> None:
            setattr(toy.speaking, call, real)
            raise RuntimeError("the toy broke")

        setattr(toy.speaking, call, breaks)
        await rig.say(QUESTION, 16_000)
        rig.talk.commit()
        await rig.until(lambda: not rig.talk.replying)
        assert [(fault.stage, fault.fatal) for fault in rig.of(TalkFault)] == [("reply", False)]
        assert rig.rows == remembered(nano_lm, int(len(rig.sound()) / SAMPLES + 0.5))
        assert rig.codec.open_replies == 0
        await goes_on(rig)
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize("failures", [1, 2])
def test_a_reply_that_cannot_be_encoded_again(nano_lm: LanguageModel, failures: int) -> None:
    """With history="reencode" a failed encoding is repeated; if it fails again the reply's own
    codes are the history. Both are reported, and neither ends the conversation."""

    async def story() -> None:
        rig = Rig(nano_lm, toy := ToyCodec(), TOY_VOICE, replace(PUSH_TO_TALK, history="reencode"))
        real, calls = toy.encode, 0

        def breaks(pcm: Tensor, sample_rate: int) -> list[int]:
            nonlocal calls
            calls += 1
            if calls <= failures:
                raise RuntimeError("the toy broke")
            return real(pcm, sample_rate)

        toy.encode = breaks  # type: ignore[method-assign]
        await rig.say(QUESTION, 16_000)
        rig.talk.commit()
        await rig.until(lambda: not rig.talk.replying)
        assert [(fault.stage, fault.fatal) for fault in rig.of(TalkFault)] == [("reply", False)]
        own = rig.rows == remembered(nano_lm, CODES)
        assert own == (failures == 2)
        assert [said.role for said in rig.talk.turns] == ["system", "user", "assistant"]
        await goes_on(rig)
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize("step", [1, 2, 3])
def test_an_engine_that_fails_while_the_user_speaks(nano_lm: LanguageModel, step: int) -> None:
    """If rows of the turn are lost, one error is reported, the turn is dropped, and the next one is
    heard."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        await rig.settle()
        before, calls = rig.rows, 0

        def breaks(tables: list[PageTable]) -> None:
            nonlocal calls
            calls += 1
            if calls == step:
                raise RuntimeError("a step broke")

        rig.served.stepper.before = breaks
        await rig.say(speech(0.8, 16_000), 16_000, 1280)
        rig.talk.commit()
        await rig.until(lambda: not rig.talk.replying)
        (fault,) = rig.of(TalkFault)
        assert (fault.stage, fault.fatal) == ("listening", False)
        assert "a step broke" in fault.message
        assert rig.rows == before
        await goes_on(rig)
        await rig.close()
        rig.assert_clean()

    run(story())


def test_an_encoder_that_fails(nano_lm: LanguageModel) -> None:
    """If the encoder fails, one error is reported, the turn is dropped, the rest of it is not
    collected, and the next one is heard."""

    async def story() -> None:
        rig = Rig(nano_lm, toy := ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        toy.hearing.fails = True
        before = rig.rows
        await rig.say(speech(0.6, 16_000), 16_000)
        listening = rig.talk._controller.listening
        assert listening is not None
        assert listening._packets == []
        rig.talk.commit()
        await rig.until(lambda: not rig.talk.replying)
        assert [fault.stage for fault in rig.of(TalkFault)] == ["listening"]
        assert not rig.of(ReplyStarted)
        assert rig.rows == before
        toy.hearing.fails = False
        await goes_on(rig)
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize("call", [1, 2, 12, 20])
def test_an_engine_that_fails_in_mid_reply(nano_lm: LanguageModel, call: int) -> None:
    """A step that keeps failing ends the reply with an error, and the conversation stays usable."""

    async def story() -> None:
        rig = await asked(nano_lm)
        calls = 0

        def breaks(tables: list[PageTable]) -> None:
            nonlocal calls
            calls += 1
            if calls >= call and not rig.of(TalkFault):
                raise RuntimeError("a step broke")

        rig.served.stepper.before = breaks
        await rig.until(lambda: not rig.talk.replying)
        assert [(fault.stage, fault.fatal) for fault in rig.of(TalkFault)] == [("reply", False)]
        sent_codes = len(rig.sound()) / SAMPLES
        assert rig.rows == remembered(nano_lm, int(sent_codes + 0.5))
        await goes_on(rig)
        await rig.close()
        rig.assert_clean()

    run(story())


def test_rows_that_the_engine_lost_are_restored(nano_lm: LanguageModel) -> None:
    """If the closing rows of a reply cannot be computed the engine drops them, and the next turn
    starts by appending them again."""

    async def story() -> None:
        rig = await asked(nano_lm)
        while rig.talk.turns[-1].role != "assistant":  # until the reply is generated and closed
            await rig.one_step()

        def breaks(tables: list[PageTable]) -> None:
            raise RuntimeError("a step broke")

        rig.served.stepper.before = breaks
        await rig.settle()
        assert len(rig.rows) < len(remembered(nano_lm, CODES))
        rig.served.stepper.before = lambda tables: None
        await rig.until(lambda: not rig.talk.replying)
        await goes_on(rig)
        assert rig.rows[: len(remembered(nano_lm, CODES))] == remembered(nano_lm, CODES)
        assert not rig.of(TalkFault)
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_full_engine_is_reported_and_respond_works_later(
    nano_lm: LanguageModel,
) -> None:
    """On `EngineFull` the user's turn stays, and `respond` asks again."""

    async def story() -> None:
        rig = Rig(
            nano_lm,
            ToyCodec(),
            TOY_VOICE,
            PUSH_TO_TALK,
            engine_settings=replace(ROOMY, max_speaking=1),
        )
        other = rig.served.engine.open()
        other.append(nano_lm.format.prompt([Turn("user", text="x")], "speech"))
        talking = other.reply(replace(RIG.sampling, max_new=1000, min_new=1001))
        rig.hold_engine = True
        await rig.say(QUESTION, 16_000)
        rig.talk.commit()
        for _ in range(20):
            await rig.one_step()
        assert "speech replies at once" in rig.of(TalkFault)[0].message
        talking.cancel()
        other.close()
        rig.hold_engine = False
        rig.talk.respond()
        await rig.until(lambda: not rig.talk.replying)
        assert rig.rows == remembered(nano_lm, CODES)
        await rig.close()
        rig.assert_clean()

    run(story())


def test_bad_input_is_refused_and_changes_nothing(nano_lm: LanguageModel) -> None:
    """Invalid sound, invalid rates and calls in the wrong order raise and change nothing."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        talk, silence = rig.talk, np.zeros(160, np.float32)
        before = rig.rows
        for pcm, rate, message in (
            (np.full(10, np.nan, np.float32), 16_000, "not finite"),
            (silence, 100, "sample_rate is 100"),
            (np.zeros((2, 2, 2), np.float32), 16_000, "shape"),
        ):
            with pytest.raises(MossliveError, match=message):
                talk.push_audio(pcm, rate)
        with pytest.raises(MossliveError, match="reply is 'song'"):
            talk.push_text("Hi", reply="song")  # type: ignore[arg-type]
        assert not talk.commit()
        assert not talk.cancel()
        talk.push_audio(silence, 16_000)
        with pytest.raises(MossliveError, match="16000 until the turn ends"):
            talk.push_audio(silence, 48_000)
        with pytest.raises(MossliveError, match="commit or clear"):
            talk.push_text("Hi")
        with pytest.raises(MossliveError, match="a turn is in progress"):
            talk.respond()
        await rig.settle()
        talk.clear()
        await rig.settle()
        assert rig.rows == before
        talk.push_audio(silence, 48_000)  # between turns the rate may change
        talk.clear()
        await rig.close()
        rig.assert_clean()
        with pytest.raises(MossliveError, match="closed"):
            talk.push_audio(silence, 16_000)

    run(story())


@pytest.mark.parametrize("steps", [0, 2, 8, 14, 30])
def test_closed_at_any_moment(nano_lm: LanguageModel, steps: int) -> None:
    """A client that disappears leaves no pages, tasks or codec state."""

    async def story() -> None:
        rig = await asked(nano_lm)
        for _ in range(steps):
            await rig.one_step()
        await rig.close()
        rig.assert_clean()

    run(story())
