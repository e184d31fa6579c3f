"""Turn detection on a thread: signals and their order are the same as on the event loop."""

import asyncio
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import LanguageModel
from mosslive.talk.events import (
    Event,
    ReplyDone,
    ReplyInterrupted,
    SpeechStarted,
    SpeechStopped,
    TalkFault,
    TurnDetected,
)
from mosslive.talk.turn_detection import FixedSilence, TurnSettings
from mosslive.talk.user_input import UserInput
from mosslive.talk.vad import VoiceActivity
from tests.talk.rig import CODES, RIG, FakeClock, Later, LoudVad, Rig, Wave, frames, run
from tests.talk.toy import SAMPLES, TOY_VOICE, ToyCodec

PLAIN = TurnSettings(end=FixedSilence())
STREAM = frames((0.3, False), (0.6, True), (0.6, False), (0.5, True), (0.7, False), (0.1, True))


class Recorder:
    """Stands in for the turn controller and the event queue. Records signals and samples."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.listening: int | None = None
        self.reply = None
        self._turn = 0

    def next_turn(self) -> int:
        self._turn += 1
        return self._turn

    def listen(self, turn: int, rate_hz: int, interrupt: bool) -> None:
        self.listening = turn

    def feed(self, wave: torch.Tensor) -> None:
        self.items += wave.tolist()

    def pause(self, kind: str, over_at: float) -> None:
        self.items.append(("pause", over_at))

    def resume(self) -> None:
        self.items.append("resume")

    def end_turn(self, kind: str, speech_end: float) -> None:
        self.listening = None

    def put(self, event: Event) -> None:
        self.items.append(event)


def user_input(
    recorder: Recorder, threads: Executor | None, vad: VoiceActivity | None = None
) -> UserInput:
    stand_in: Any = recorder
    talk_settings = replace(RIG, turns=PLAIN, speculate=True)
    vad = vad or LoudVad()
    return UserInput(stand_in, talk_settings, vad, None, threads, FakeClock(), stand_in)


def at_once(wave: Wave) -> list[Any]:
    recorder = Recorder()
    user_input(recorder, None).push(torch.from_numpy(wave), 16_000)
    return recorder.items


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(["push", "thread", "loop", "now"]), st.integers(1, 4000)))
)
def test_order_does_not_depend_on_the_thread(moves: list[tuple[str, int]]) -> None:
    """The signals do not depend on the order of packets, thread, loop and synchronous calls."""

    async def story() -> None:
        threads, recorder, first = Later(), Recorder(), 0
        threaded = user_input(recorder, threads)
        for move, amount in moves:
            if move == "push":
                threaded.push(torch.from_numpy(STREAM[first : first + amount]), 16_000)
                first += amount
            elif move == "thread":
                threads.step()
            elif move == "loop":
                await asyncio.sleep(0)
            else:
                threaded.catch_up()
                assert recorder.items == at_once(STREAM[:first])
        threaded.catch_up()
        assert recorder.items == at_once(STREAM[:first])
        while threads.step():  # cancelled jobs
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert recorder.items == at_once(STREAM[:first]), "signals came twice"

    run(story())


def test_at_most_a_second_of_sound_waits_for_the_thread() -> None:
    """Sound that waits longer than a second is processed by the next push, and none is lost."""

    async def story() -> None:
        recorder = Recorder()
        threaded = user_input(recorder, Later())
        for first in range(0, len(STREAM), 320):
            threaded.push(torch.from_numpy(STREAM[first : first + 320]), 16_000)
            assert sum(map(len, threaded._waiting)) <= 16_000
        assert recorder.items == at_once(STREAM)[: len(recorder.items)]
        threaded.catch_up()
        assert recorder.items == at_once(STREAM)

    run(story())


@pytest.mark.parametrize("begun", [False, True])
def test_a_commit_finds_all_that_was_pushed(nano_lm: LanguageModel, begun: bool) -> None:
    """A commit includes all pushed sound, whether the thread has processed it or not, and the reply
    comes."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, threads=(threads := Later()))
        rig.talk.push_audio(frames((0.64, True)), 16_000)
        if begun:
            assert threads.step()
        assert not rig.talk.listening
        assert rig.talk.commit()
        assert rig.talk.replying
        await rig.until(lambda: not rig.talk.replying)
        assert len(rig.of(SpeechStarted)) == len(rig.of(TurnDetected)) == 1
        assert len(rig.sound()) == CODES * SAMPLES
        await rig.close()
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize("packet", [512, 10**6])
def test_a_conversation_with_the_vad_on_a_thread(nano_lm: LanguageModel, packet: int) -> None:
    """Two turns, the second interrupting, give the same events as on the event loop."""
    wave = frames((0.3, False), (0.64, True), (0.6, False), (0.4, True), (0.6, False))

    async def story(threads: Later | None) -> list[Any]:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, threads=threads)
        await rig.say(wave, 16_000, packet)
        await rig.until(lambda: not rig.talk.replying)
        await rig.close()
        rig.assert_clean()
        kinds = SpeechStarted | SpeechStopped | TurnDetected | ReplyInterrupted | ReplyDone
        return [event for event in rig.events if isinstance(event, kinds)]

    async def both() -> None:
        expected = await story(None)
        assert sum(isinstance(event, SpeechStarted) for event in expected) == 2
        assert await story(Later()) == expected

    run(both())


def test_a_cough_right_after_a_turn_in_the_same_packet(nano_lm: LanguageModel) -> None:
    """A cough of 0.16 s does not interrupt the reply that has just begun, however the sound is cut
    into packets."""
    wave = frames((0.64, True), (0.512, False), (0.16, True), (0.6, False))

    async def story(packet: int) -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE)
        await rig.say(wave, 16_000, packet)
        await rig.until(lambda: not rig.talk.replying)
        assert len(rig.of(SpeechStarted)) == len(rig.of(ReplyDone)) == 1
        assert not rig.of(ReplyInterrupted)
        await rig.close()
        rig.assert_clean()

    for packet in (512, 3000, 10**6):
        run(story(packet))


class BrokenVad(LoudVad):
    """Fails at one frame."""

    fails_at = 30

    def probability(self, frame: Wave) -> float:
        if self.frames + 1 == self.fails_at:
            self.frames += 1
            raise RuntimeError("the network broke")
        return super().probability(frame)


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("fails_at", [3, 30])
def test_a_vad_that_fails(nano_lm: LanguageModel, threaded: bool, fails_at: int) -> None:
    """A failing VAD, between turns or within one, is reported, the turn is dropped, and the next
    turn is heard."""

    async def story() -> None:
        vad = BrokenVad()
        vad.fails_at = fails_at
        threads = Later() if threaded else None
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, threads=threads, vad=vad)
        before = rig.rows
        await rig.say(frames((0.32, False), (0.64, True)), 16_000, 512)
        assert [(fault.stage, fault.fatal) for fault in rig.of(TalkFault)] == [("listening", False)]
        assert "the network broke" in rig.of(TalkFault)[0].message
        if fails_at == 30:
            assert rig.rows == before
            assert not rig.talk.listening
        await rig.say(frames((0.64, False), (0.64, True), (0.64, False)), 16_000, 512)
        await rig.until(lambda: not rig.talk.replying)
        done = rig.of(ReplyDone)[-1]
        assert len(rig.sound(done.turn)) == CODES * SAMPLES
        assert len(rig.of(TalkFault)) == 1
        await rig.close()
        rig.assert_clean()

    run(story())


def test_closed_while_the_thread_works(nano_lm: LanguageModel) -> None:
    """Signals that the thread finds after close are discarded."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, threads=(threads := Later()))
        rig.talk.push_audio(frames((0.64, True)), 16_000)
        await rig.close()
        threads.step()
        await rig.settle()
        assert not rig.of(SpeechStarted)
        rig.assert_clean()

    run(story())


@pytest.mark.parametrize("settings", [RIG, replace(RIG, turns=None)])
def test_a_buffer_that_is_used_again(nano_lm: LanguageModel, settings: Any) -> None:
    """The caller may reuse its buffer as soon as the push returns."""
    wave = frames((0.64, True), (0.6, False))

    async def story(again: bool) -> list[Any]:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, settings, threads=Later())
        buffer = wave.copy()
        rig.talk.push_audio(buffer[:8000], 16_000)
        rig.talk.push_audio(buffer[8000:], 16_000)
        if again:
            buffer[:] = 0.9
        await rig.settle()
        rig.talk.commit()
        await rig.settle()
        asked = list(rig.talk.turns[1].rows)
        await rig.close()
        return asked

    async def both() -> None:
        assert await story(True) == await story(False)

    run(both())


def test_silero_on_the_shared_threads() -> None:
    """If Silero is installed it gives the same signals on real threads as on the event loop."""
    pytest.importorskip("silero_vad")
    from mosslive.talk.vad import SileroVad, vad_threads

    rng = np.random.default_rng(0)
    wave = torch.from_numpy(rng.normal(0, 0.1, 48_000).astype(np.float32))

    class Probabilities:
        """Silero, with a record of its results; nothing is speech."""

        def __init__(self) -> None:
            self._vad, self.found = SileroVad(), list[float]()

        def probability(self, frame: Wave) -> float:
            self.found.append(self._vad.probability(frame))
            return 0.0

        def reset(self) -> None:
            self._vad.reset()

    async def story() -> None:
        one, other = Probabilities(), Probabilities()
        user_input(Recorder(), None, one).push(wave, 48_000)
        threaded = user_input(Recorder(), vad_threads(), other)
        for first in range(0, len(wave), 960):
            threaded.push(wave[first : first + 960], 48_000)
            await asyncio.sleep(0)
        threaded.catch_up()
        assert len(one.found) == 31
        # Not bit by bit: threads may add up in another order.
        assert other.found == pytest.approx(one.found, abs=1e-5)

    run(story())
