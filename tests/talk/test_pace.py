"""How far ahead of playback a reply is computed: bounded, and never too late."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mosslive import Engine, LanguageModel
from mosslive.codec import Codec, Voice
from mosslive.codec.flow import FlowVoice
from mosslive.config import ConfigError
from mosslive.engine.settings import EngineSettings
from mosslive.talk import TalkSettings
from mosslive.talk.events import ReplyDone, ReplyInterrupted, TimingReady
from mosslive.talk.speech_codec import SpeechCodec
from tests.talk.rig import RIG, FakeClock, Rig, Script, frames, run
from tests.talk.test_interruption import PUSH_TO_TALK
from tests.talk.toy import TOY_VOICE, ToyCodec, toy_sound

LONG = 500  # codes: 40 s
SAMPLING = replace(RIG.sampling, max_new=LONG, min_new=LONG + 1)
PACED = replace(PUSH_TO_TALK, sampling=SAMPLING)
AHEAD_ROWS = 20  # of the engine, beyond what is taken of it
_NEXT_SOUND_S = 8 * 0.08  # a chunk and its look-ahead


def paced_rig(
    lm: LanguageModel,
    settings: TalkSettings,
    codec: SpeechCodec | None = None,
    voice: Voice = TOY_VOICE,
) -> Rig:
    """An engine and a codec that take no time."""
    clock = FakeClock()
    limits = EngineSettings(headroom_rows=0, ahead_rows=AHEAD_ROWS)
    engine = Engine(Script(lm, [(1, 7)]), lm.tokenizer, limits, clock=clock.now, threaded=False)
    rig = Rig(lm, codec or ToyCodec(), voice, settings, engine=engine, clock=clock)
    rig.eager = True
    return rig


def ahead_s(rig: Rig) -> tuple[float, float]:
    """Codes taken, and rows computed, beyond what was heard, in seconds."""
    reply = rig.talk._controller.reply
    assert reply is not None
    assert reply.sound is not None
    assert reply._stream is not None
    heard_s = reply.sound.playback.heard(rig.clock.now()) / rig.codec.sample_rate
    return 0.08 * reply.sound._taken - heard_s, 0.08 * len(reply._stream.rows) - heard_s


@pytest.mark.parametrize("wanted_s", [1.0, 5.0])
def test_a_reply_is_generated_a_bounded_time_ahead(nano_lm: LanguageModel, wanted_s: float) -> None:
    """At every moment of 40 s, except at the end, the reply is as far ahead as set and no further,
    without an underrun, complete, and pauses do not count in the real-time factor."""

    async def story() -> None:
        rig = paced_rig(nano_lm, replace(PACED, ahead_s=wanted_s))
        rig.talk.push_text("Hello")
        await rig.settle()
        seconds = 0.0
        while not rig.of(ReplyDone):
            taken_s, made_s = ahead_s(rig)
            if seconds < 40 - wanted_s - 4:
                most_s = wanted_s + _NEXT_SOUND_S + 0.09
                assert most_s - 0.18 - 0.4 <= taken_s <= most_s  # codes are taken by the chunk
                assert made_s <= taken_s + 0.08 * AHEAD_ROWS + 0.01
            await rig.wait(0.25)
            seconds += 0.25
        np.testing.assert_array_equal(rig.sound(), toy_sound([7] * LONG))
        timing = rig.of(TimingReady)[0].timing
        assert timing.underruns == 0
        assert timing.rest_s > 30
        assert timing.rtf == pytest.approx(0, abs=0.01)
        await rig.close()
        assert rig.codec.open_replies == 0

    run(story())


@pytest.mark.parametrize(
    "settings",
    [
        replace(PACED, lead_s=None),
        replace(PACED, lead_s=math.inf),
        replace(PACED, ahead_s=math.inf),
    ],
)
def test_without_a_listener_in_real_time_there_is_no_pace(
    nano_lm: LanguageModel, settings: TalkSettings
) -> None:
    """Without real-time playback sound is produced as fast as possible."""

    async def story() -> None:
        rig = paced_rig(nano_lm, settings)
        rig.talk.push_text("Hello")
        for _ in range(600):
            await rig.one_step()
        reply = rig.talk._controller.reply
        taken = reply.sound._taken if reply and reply.sound else LONG
        assert taken == LONG
        await rig.until(lambda: not rig.talk.replying)
        assert rig.of(TimingReady)[0].timing.rest_s <= 10
        await rig.close()

    run(story())


def test_a_reply_that_rests_can_be_interrupted(nano_lm: LanguageModel) -> None:
    """A paused reply can be interrupted at once, and little was computed for nothing."""

    async def story() -> None:
        rig = paced_rig(nano_lm, PACED)
        rig.talk.push_text("Hello")
        await rig.wait(3.0)
        taken_s, _ = ahead_s(rig)
        assert rig.talk.cancel()
        await rig.settle()
        (cut,) = rig.of(ReplyInterrupted)
        assert cut.heard_codes == pytest.approx(3.0 / 0.08, abs=1)
        assert taken_s < 6
        assert rig.codec.open_replies == 0
        assert rig.talk._controller.queue.tasks == 0
        await rig.close()

    run(story())


@pytest.mark.parametrize("lead_s", [RIG.lead_s, None])
def test_a_speculative_reply_rests_until_it_is_adopted(
    nano_lm: LanguageModel, lead_s: float | None
) -> None:
    """Of a speculative reply only the beginning is computed, however its sound is paced, and the
    rest after it is adopted."""

    async def story() -> None:
        settings = replace(RIG, sampling=SAMPLING, speculate=True, lead_s=lead_s)
        rig = paced_rig(nano_lm, settings)
        pause = frames((0.64, True), (8 * 0.032, False))
        await rig.say(pause, 16_000, 512)
        current = rig.talk._controller._speculation._current
        assert current is not None
        sound = current[0].reply.sound
        assert sound is not None
        assert sound._taken == 8 + 10
        stream = current[0].reply._stream
        assert stream is not None
        assert len(stream.rows) <= 8 + 10 + 8
        assert rig.codec.production.replies == 0, "nobody listens to it"
        await rig.say(frames((0.6, False)), 16_000, 512)
        await rig.until(lambda: not rig.talk.replying)
        np.testing.assert_array_equal(rig.sound(), toy_sound([7] * LONG))
        assert rig.of(TimingReady)[0].timing.underruns == 0
        await rig.close()

    run(story())


def test_a_long_first_chunk_is_waited_for(
    nano_lm: LanguageModel, codec: Codec, voice: Voice
) -> None:
    """A voice shorter than a chunk makes the first one longer: as many codes are taken as it needs,
    however little is asked for ahead."""
    prompt = voice.prompt
    few = FlowVoice(prompt.prompt_codes[:4], prompt.prompt_feat[:16], prompt.embedding)
    sampling = replace(SAMPLING, max_new=60, min_new=61)

    async def story() -> None:
        settings = replace(PACED, chunk=25, ahead_s=1.0, sampling=sampling)
        rig = paced_rig(nano_lm, settings, codec, replace(voice, prompt=few))
        rig.talk.push_text("Hello")
        await rig.until(lambda: bool(rig.of(ReplyDone)), 10)
        assert len(rig.sound()) == 60 * 1920
        assert rig.of(TimingReady)[0].timing.underruns == 0
        await rig.close()
        assert rig.codec.open_replies == 0

    run(story())


@pytest.mark.parametrize("ahead", [0.0, 0.99, -1.0, math.nan, "5"])
def test_too_small_a_lead_is_refused(ahead: float) -> None:
    """A lead of less than a second is refused, because playback would stutter."""
    with pytest.raises(ConfigError, match=r"ahead_s is .*; allowed: 1 second or more, or inf"):
        TalkSettings(ahead_s=ahead)


def test_other_ends_of_a_reply_are_refused() -> None:
    """The error names the unknown rule, before a conversation begins."""
    with pytest.raises(ConfigError, match="tail is 'exact'; allowed: reference, cached"):
        TalkSettings(tail="exact")  # type: ignore[arg-type]
