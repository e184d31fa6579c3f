"""Long and crowded conversations: an hour, silence, clicks, 30 s turns, many at once, real
threads."""

import asyncio
import gc
import math
import os
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from mosslive import Engine, LanguageModel, Turn
from mosslive.codec import Codec, Voice
from mosslive.engine import PlainStepper
from mosslive.talk import AdaptiveSilence, Talk, TurnSettings
from mosslive.talk.events import (
    AudioChunk,
    ContextTrimmed,
    ReplyDone,
    ReplyInterrupted,
    SpeechStarted,
    TalkFault,
    TimingReady,
)
from mosslive.talk.vad import VAD_HZ, SileroVad
from tests.codec.conftest import speech
from tests.engine.serving import ROOMY, Served
from tests.talk.rig import CODES, RIG, FakeClock, Later, Rig, Script, frames, heap_bytes, run
from tests.talk.test_interruption import PUSH_TO_TALK, QUESTION, SYSTEM, asked, history, remembered
from tests.talk.toy import SAMPLES, TOY_VOICE, Halves, ToyCodec

LONG = pytest.mark.skipif(
    os.environ.get("LONG_TESTS") != "1", reason="takes minutes; LONG_TESTS=1 runs it"
)


@pytest.mark.parametrize("hours", [1, pytest.param(8, marks=LONG)])
def test_hours_of_conversation_in_flat_memory(nano_lm: LanguageModel, hours: int) -> None:
    """Questions of 4 s, replies of 6 s, every third one interrupted: 360 turns an hour. Pages,
    tasks, rows and the heap are at the end what they were after ten minutes, and the last turns
    take no longer to compute than the first."""
    sampling = replace(RIG.sampling, max_new=75, min_new=76)
    settings = replace(PUSH_TO_TALK, sampling=sampling, context_rows=2000, lead_s=math.inf)
    question = np.zeros(4 * 8000, np.float32)

    async def story() -> None:
        parrot, clock = Script(nano_lm, [(1, 7)]), FakeClock()
        engine = Engine(parrot, nano_lm.tokenizer, ROOMY, clock=clock.now, threaded=False)
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, settings, engine=engine, clock=clock)
        rig.eager = True
        sizes, trims, costs_s = [], 0, [time.process_time()]
        for turn in range(360 * hours):
            await rig.say(question, 8000, packet=32_000)
            rig.talk.commit()
            if turn % 3 == 2:
                await rig.wait(3.0)
                assert rig.talk.cancel()
                await rig.settle()
            else:
                await rig.until(lambda: not rig.talk.replying)
            assert not rig.of(TalkFault)
            trims += len(rig.of(ContextTrimmed))
            rig.events.clear()
            assert len(rig.rows) <= 2000
            assert rig.talk._controller.queue.tasks == 0
            assert rig.codec.open_replies == rig.codec.open_turns == 0
            if turn % 60 == 59:
                sizes.append(heap_bytes())
                costs_s.append(time.process_time())
        assert clock.now() - 1000 > 3000 * hours
        assert trims > 10 * hours
        assert max(sizes[1:]) - sizes[1] < 100_000, sizes
        each_s = np.diff(costs_s)
        assert each_s[-1] < 2 * np.median(each_s), each_s
        await rig.close()
        assert parrot.pool.free == parrot.pool.total

    run(story())


@pytest.mark.parametrize("pace", [0.94, 1.06])
def test_a_client_whose_clock_drifts(nano_lm: LanguageModel, pace: float) -> None:
    """In two minutes its clock gains or loses 7 s, as one that is wrong by 0.2 % does in an hour.
    The last turn is detected as soon after its end as the first, and nothing underruns."""
    question = frames((0.64, True), (14.4, False))
    packet = VAD_HZ // 10

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, RIG)
        for _ in range(8):
            for first in range(0, len(question), packet):
                await rig.wait(pace * packet / VAD_HZ)
                rig.talk.push_audio(question[first : first + packet], VAD_HZ)
            await rig.settle()
        timings = [event.timing for event in rig.of(TimingReady)]
        assert len(timings) == 8
        waits_s = [timing.detection_s or 0.0 for timing in timings]
        assert max(waits_s) - min(waits_s) < 0.2, waits_s
        assert not any(timing.underruns for timing in timings)
        await rig.close()

    run(story())


def test_live_turns_in_flat_memory(nano_lm: LanguageModel) -> None:
    """With adaptive ends, speculative replies, every third reply interrupted and the VAD on a
    thread, the heap, samples included, stops growing after the first turns."""
    turns = TurnSettings(end=AdaptiveSilence())
    settings = replace(RIG, turns=turns, speculate=True, context_rows=600)
    question = frames((0.64, True), (1.6, False))

    async def story() -> None:
        parrot, clock = Script(nano_lm, [(1, 7)]), FakeClock()
        engine = Engine(parrot, nano_lm.tokenizer, ROOMY, clock=clock.now, threaded=False)
        threads = Later()
        rig = Rig(
            nano_lm, ToyCodec(), TOY_VOICE, settings, engine=engine, clock=clock, threads=threads
        )
        interrupted, speculative = 0, 0
        for turn in range(30):
            await rig.say(question, 16_000, packet=1600)
            if turn % 3 != 2:  # else the next question interrupts the reply
                await rig.until(lambda: not rig.talk.replying)
            assert not rig.of(TalkFault)
            interrupted += len(rig.of(ReplyInterrupted))
            speculative += sum(event.timing.speculative for event in rig.of(TimingReady))
            rig.events.clear()
            assert rig.talk._controller.queue.tasks <= 1
            assert len(threads.jobs) == 0
            if turn == 9:
                tracemalloc.start()
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert interrupted > 7
        assert speculative > 12
        assert grown < 1_000_000, "less than the sound of seven replies"
        await rig.close()
        assert parrot.pool.free == parrot.pool.total
        assert rig.codec.open_replies == rig.codec.open_turns == 0

    run(story())


async def assert_no_turn(rig: Rig, wave: NDArray[np.float32]) -> None:
    """The sound gives no event and no row, and everything is freed."""
    before = rig.rows
    for first in range(0, len(wave), 8000):
        rig.talk.push_audio(wave[first : first + 8000], 16_000)
    await rig.settle()
    assert rig.events == []
    assert rig.rows == before
    await rig.close()
    rig.assert_clean()


@pytest.mark.parametrize("sound", ["silence", "clicks", "hum"])
def test_silero_detects_no_speech_in_it(nano_lm: LanguageModel, sound: str) -> None:
    """If Silero is installed, ten seconds of silence, clicks and mains hum give no turn."""
    pytest.importorskip("silero_vad")
    time_s = np.arange(16_000 * 10) / 16_000
    wave = np.zeros(len(time_s), np.float32)
    if sound == "clicks":
        wave[:: 16_000 // 3] = 0.9
    if sound == "hum":
        wave[:] = 0.05 * np.sin(2 * np.pi * 50 * time_s)

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, vad=SileroVad())
        await assert_no_turn(rig, wave)

    run(story())


@pytest.mark.parametrize("sound", ["silence", "clicks", "hum"])
def test_sound_that_is_no_speech_leaves_nothing(nano_lm: LanguageModel, sound: str) -> None:
    """A minute of it gives no turn and no row, and no sound is kept."""
    wave = np.zeros(16_000 * 60, np.float32)
    if sound == "clicks":
        wave[:: 16_000 // 3] = 0.9
    if sound == "hum":
        wave[:] = 0.01

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE)
        await assert_no_turn(rig, wave)

    run(story())


def test_clicks_do_not_interrupt(nano_lm: LanguageModel) -> None:
    """A cough during a reply does not interrupt it."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE)
        await rig.say(frames((0.64, True), (0.576, False)), 16_000, 512)
        assert rig.talk.replying
        await rig.say(frames((0.1, True), (0.2, False), (0.16, True), (1.5, False)), 16_000, 512)
        assert len(rig.of(ReplyDone)) == len(rig.of(SpeechStarted)) == 1
        assert len(rig.sound()) == CODES * SAMPLES
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize(("samples", "count"), [(0, 375), (1, 376), (16_000, 375 + 13)])
def test_a_turn_across_the_segment_border(
    nano_lm: LanguageModel, codec: Codec, samples: int, count: int
) -> None:
    """The encoder starts a new segment after 30 s: codes of exactly 30 s, of one sample more and of
    a second more equal the offline ones."""
    wave = np.concatenate((0.3 * speech(15.0, 16_000), speech(16.0, 16_000, seed=1)))
    wave = wave[: 30 * 16_000 + samples]

    async def story() -> None:
        rig = Rig(nano_lm, Halves(codec, ToyCodec()), TOY_VOICE, PUSH_TO_TALK)
        for first in range(0, len(wave), 48_000):
            rig.talk.push_audio(wave[first : first + 48_000], 16_000)
            await rig.settle()
        rig.talk.commit()
        await rig.until(lambda: not rig.talk.replying)
        codes = codec.encode(wave, 16_000)
        assert len(codes) == count
        assert list(rig.talk.turns[1].rows) == nano_lm.format.turn(Turn("user", codes=codes))
        await rig.close()
        rig.assert_clean()

    run(story())


def test_conversations_side_by_side_share_steps_and_nothing_else(nano_lm: LanguageModel) -> None:
    """Four conversations on one engine and one codec each get their own reply, rendered in shared
    steps."""

    async def story() -> None:
        rig = await asked(nano_lm)
        toy = rig.codec.codec
        assert isinstance(toy, ToyCodec)
        rig.hold_engine = True
        talks = [
            Talk(rig.engine, rig.codec, TOY_VOICE, PUSH_TO_TALK, clock=rig.clock) for _ in range(3)
        ]
        for number, talk in enumerate(talks):
            talk.push_text("x" * number)
        rig.hold_engine = False
        await rig.until(lambda: not any(talk.replying for talk in [rig.talk, *talks]))
        assert rig.rows == remembered(nano_lm, CODES)
        for number, talk in enumerate(talks):
            turns = [SYSTEM, Turn("user", text="x" * number)]
            made = nano_lm.generate(nano_lm.format.prompt(turns, "speech"), RIG.sampling)
            said = Turn("assistant", codes=[code for _, code in made])
            rows = [row for turn in talk.turns for row in turn.rows]
            assert rows == history(nano_lm, [*turns, said])
            closing = asyncio.ensure_future(talk.close())
            await rig.settle()
            await closing
        assert max(toy.speaking.sizes) >= 3
        await rig.close()
        rig.assert_clean()

    run(story())


def test_with_real_threads_and_the_real_codec(
    nano_lm: LanguageModel, codec: Codec, voice: Voice
) -> None:
    """With an engine thread, a codec thread and the wall clock, two turns and an interruption give
    the reference's history."""

    async def story() -> None:
        served = Served(nano_lm)
        engine = Engine(PlainStepper(served.lm.runner), nano_lm.tokenizer, ROOMY)
        settings = replace(PUSH_TO_TALK, lead_s=None, sampling=replace(RIG.sampling, max_new=13))
        talk = Talk(engine, codec, voice, settings)
        await talk.warm()
        sound = []
        talk.push_audio(QUESTION, 16_000)
        talk.commit()
        async for event in talk.events():
            assert not isinstance(event, TalkFault), event
            if isinstance(event, AudioChunk):
                sound.append(event.pcm)
            if isinstance(event, ReplyDone):
                break
        turns = [SYSTEM, Turn("user", codes=codec.encode(QUESTION, 16_000))]
        made = nano_lm.generate(nano_lm.format.prompt(turns, "speech"), settings.sampling)
        codes = [code for _, code in made]
        rows = [row for said in talk.turns for row in said.rows]
        assert rows == history(nano_lm, [*turns, Turn("assistant", codes=codes)])
        assert sum(map(len, sound)) == len(codes) * 1920
        talk.push_text("And?")
        talk.cancel()
        await talk.close()
        await engine.close()
        assert served.all_free()

    run(story())
