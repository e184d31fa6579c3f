"""A whole conversation streamed equals the offline one: rows and sound do not depend on the
packets."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import Engine, LanguageModel, Sampling, Turn
from mosslive.codec import Codec, Voice
from mosslive.codec.flow_stream import TailRule
from mosslive.rows import ReplyKind, Row
from mosslive.talk.codec_requests import Render, Request
from mosslive.talk.events import ReplyDone, TextDelta, TimingReady
from tests.codec.conftest import speech
from tests.engine.serving import ROOMY
from tests.talk.rig import CODES, RIG, FakeClock, Later, Rig, Script, frames, run
from tests.talk.toy import TOY_VOICE, Halves, ToyCodec, toy_codes, toy_sound

PUSH_TO_TALK = replace(RIG, turns=None)


def offline(
    lm: LanguageModel, turns: list[Turn], reply: ReplyKind, sampling: Sampling
) -> list[Row]:
    """The rows of a conversation after one more reply, by the plain loop."""
    prompt = lm.format.prompt([Turn("system", text="Hi."), *turns], reply)
    made = list(lm.generate(prompt, sampling))
    end = [(lm.ids.modality_pad, lm.ids.eosp)] if lm.ids.is_speech(made[-1]) else []
    return prompt + made + end + lm.format.footer()


def reply_codes(rows: list[Row], lm: LanguageModel) -> list[int]:
    """The codes of the last turn."""
    return [audio for _, audio in rows[-CODES - 3 : -3]]


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    rate=st.sampled_from([8000, 16_000, 44_100, 48_000]),
    packets=st.lists(st.integers(1, 9000), min_size=1, max_size=6),
    seconds=st.floats(0.05, 2.0),
)
def test_push_to_talk_turns_equal_the_offline_reference(
    nano_lm: LanguageModel, codec: Codec, rate: int, packets: list[int], seconds: float
) -> None:
    """With the real encoder at any rate and packets of any size the prompt is that of the whole
    file."""
    wave = speech(seconds, rate)

    async def story() -> None:
        hears = Halves(codec, ToyCodec())
        rig = Rig(nano_lm, hears, TOY_VOICE, PUSH_TO_TALK)
        first, turn = 0, 0
        while first < len(wave):
            size = packets[turn % len(packets)]
            rig.talk.push_audio(wave[first : first + size], rate)
            first, turn = first + size, turn + 1
            await rig.settle()
        assert rig.talk.commit()
        await rig.until(lambda: not rig.talk.replying)
        codes = codec.encode(wave, rate)
        expected = offline(nano_lm, [Turn("user", codes=codes)], "speech", RIG.sampling)
        assert rig.rows == expected
        np.testing.assert_array_equal(rig.sound(), toy_sound(reply_codes(expected, nano_lm)))
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize("tail", ["cached", "reference"])
def test_the_real_codec_speaks_as_offline(
    nano_lm: LanguageModel, codec: Codec, voice: Voice, tail: TailRule
) -> None:
    """Live sound equals one decoder stream over the whole reply, bit for bit, for both rules for
    the end of a reply."""
    wave = speech(0.7, 16_000)

    async def story() -> None:
        rig = Rig(nano_lm, codec, voice, replace(PUSH_TO_TALK, tail=tail))
        await rig.say(wave, 16_000)
        rig.talk.commit()
        await rig.until(lambda: not rig.talk.replying)
        codes = reply_codes(rig.rows, nano_lm)
        stream = codec.decoder_stream(voice, tail=tail)
        whole = np.concatenate((stream.push(codes), stream.finish()))
        np.testing.assert_array_equal(rig.sound(), whole)
        assert len(whole) == 1920 * CODES
        await rig.close()
        rig.assert_clean()

    run(story())


def test_the_end_of_the_prompt_is_there_before_the_first_chunk(
    nano_lm: LanguageModel, codec: Codec, voice: Voice
) -> None:
    """The first three codes are pushed ahead and give no sound; the first chunk then needs the
    other five, and the timing's first sound is not empty."""

    async def story() -> None:
        rig = Rig(nano_lm, codec, voice, PUSH_TO_TALK)
        given: list[int] = []
        ask = rig.codec.ask

        def watched(request: Request) -> Any:
            if isinstance(request, Render):
                given.append(len(request.codes))
            return ask(request)

        rig.codec.ask = watched  # type: ignore[method-assign]
        rig.talk.push_text("Hello")
        while not given:
            await rig.one_step()
        while len(given) == 1:
            rig.clock.move_to(rig.clock.time + 0.001)
            await rig.one_step()
        await rig.until(lambda: not rig.talk.replying)
        assert given[:2] == [3, 5]
        assert sum(given) == CODES
        timing = rig.of(TimingReady)[0].timing
        assert timing.first_row is not None
        assert timing.first_chunk is not None
        assert timing.first_pcm is not None
        assert timing.first_row < timing.first_chunk <= timing.first_pcm
        assert timing.first_render_s <= timing.render_s
        await rig.close()
        rig.assert_clean()

    run(story())


@settings(max_examples=3, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(160, 9000), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from(get_args(TailRule)),
)
def test_a_live_turn_equals_the_offline_reference(
    nano_lm: LanguageModel,
    codec: Codec,
    voice: Voice,
    packets: list[int],
    threaded: bool,
    tail: TailRule,
) -> None:
    """From microphone to loudspeaker with the real codec and turn detection, rows and samples equal
    those of the turn's sound offline, for packets of any size, with and without a thread."""
    wave = frames((0.4, False), (0.8, True), (0.2, False), (0.4, True), (0.6, False))
    first = len(frames((0.4, False))) - 4800  # the pre-roll
    last = len(wave) - len(frames((0.6, False))) + 16 * 512
    turn = Turn("user", codes=codec.encode(wave[first:last], 16_000))

    async def story() -> None:
        threads = Later() if threaded else None
        rig = Rig(nano_lm, codec, voice, replace(RIG, tail=tail), threads=threads)
        sent, number = 0, 0
        while sent < len(wave):
            size = packets[number % len(packets)]
            rig.talk.push_audio(wave[sent : sent + size], 16_000)
            sent, number = sent + size, number + 1
            await rig.one_step()
        await rig.settle()
        await rig.until(lambda: not rig.talk.replying)
        expected = offline(nano_lm, [turn], "speech", RIG.sampling)
        assert rig.rows == expected
        stream = codec.decoder_stream(voice, tail=tail)
        codes = reply_codes(expected, nano_lm)
        whole = np.concatenate((stream.push(codes), stream.finish()))
        np.testing.assert_array_equal(rig.sound(), whole)
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_revised_code_is_run_again_and_nothing_before_it(nano_lm: LanguageModel) -> None:
    """If the end of a turn changes codes, rows are truncated at the first changed one and not
    before."""
    levels = np.repeat(np.array([0.9, 0.1, 0.1, 0.99, 0.2], np.float32), 1280)

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        await rig.say(levels, 16_000)
        live = rig.rows
        rig.talk.commit()
        await rig.until(lambda: not rig.talk.replying)
        exact = toy_codes(torch.from_numpy(levels), 16_000)
        assert exact[:3] != toy_codes(torch.from_numpy(levels), 16_000, live=True)[:3]
        expected = offline(nano_lm, [Turn("user", codes=exact)], "speech", RIG.sampling)
        assert rig.rows == expected
        assert live == [*expected[: len(live) - 5], *live[-5:]]
        timing = rig.of(TimingReady)[0].timing
        assert (timing.codes_heard, timing.codes_revised) == (5, 5)
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize("reply", ["speech", "text"])
@pytest.mark.parametrize("spoken", [True, False])
def test_four_modes_in_one_conversation(
    nano_lm: LanguageModel, spoken: bool, reply: ReplyKind
) -> None:
    """Speech or text in, speech or text out; the second turn sees the first as history."""
    wave = speech(0.5, 16_000)
    own = Turn("user", codes=toy_codes(torch.from_numpy(wave), 16_000))
    own = own if spoken else Turn("user", text="What?")

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        rig.talk.push_text("Hello", reply="text")
        await rig.until(lambda: not rig.talk.replying)
        before = rig.rows
        if spoken:
            await rig.say(wave, 16_000)
            rig.talk.commit(reply)
        else:
            rig.talk.push_text("What?", reply)
        await rig.until(lambda: not rig.talk.replying)
        greeting = offline(nano_lm, [Turn("user", text="Hello")], "text", RIG.sampling)
        assert before == greeting
        prompt = before + nano_lm.format.prompt([own], reply)
        made = list(nano_lm.generate(prompt, RIG.sampling))
        assert rig.rows[: len(prompt) + len(made)] == prompt + made
        assert bool(len(rig.sound())) == (reply == "speech")
        text = "".join(delta.text for delta in rig.of(TextDelta) if delta.turn == 2)
        assert rig.of(ReplyDone)[1].text == text == nano_lm.read(made).text
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize("codes", [[], [3], list(range(40, 58))])
def test_a_reply_that_the_model_ends(nano_lm: LanguageModel, codes: list[int]) -> None:
    """A reply with end of speech and end of turn has the sound of exactly the codes before, and the
    history of the prompt format. No code at all is silence, not an error."""
    ids, stop = nano_lm.ids, nano_lm.format.footer()[0][0]
    script = [*((0, code) for code in codes), (0, ids.eosp), (stop, ids.audio_pad)]

    async def story() -> None:
        clock, stepper = FakeClock(), Script(nano_lm, script)
        engine = Engine(stepper, nano_lm.tokenizer, ROOMY, clock=clock.now, threaded=False)
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK, engine=engine, clock=clock)
        rig.talk.push_text("Hello")
        await rig.until(lambda: not rig.talk.replying)
        done = rig.of(ReplyDone)[0]
        assert (done.codes, done.stop) == (len(codes), "stop")
        np.testing.assert_array_equal(rig.sound(), toy_sound(codes))
        said = nano_lm.format.turn(Turn("assistant", codes=codes))
        assert list(rig.talk.turns[-1].rows) == said
        assert rig.rows[-len(said) :] == said
        timing = rig.of(TimingReady)[0].timing
        assert (timing.ttfa_s is None) == (not codes)
        await rig.close()
        assert stepper.pool.free == stepper.pool.total

    run(story())
