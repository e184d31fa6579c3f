"""Listening on a thread: signals and their order are the same as on the event loop."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import LanguageModel
from mosslive.talk.events import (
    ReplyDone,
    ReplyInterrupted,
    SpeechStarted,
    SpeechStopped,
    TalkFault,
    TurnDetected,
)
from mosslive.talk.segmenter import Segmenter, Sound, TurnItem, VadSegmenter
from mosslive.talk.turn_detection import FixedSilence, TurnSettings
from mosslive.talk.vad_worker import VadWorker
from tests.talk.rig import CODES, RIG, FakeClock, Later, LoudVad, Rig, Wave, frames, run
from tests.talk.toy import SAMPLES, TOY_VOICE, ToyCodec

PLAIN = TurnSettings(end=FixedSilence())
STREAM = frames((0.3, False), (0.6, True), (0.6, False), (0.5, True), (0.7, False), (0.1, True))


@dataclass
class Listener:
    """Records the signals and the samples of each piece of sound."""

    told: list[Any] = field(default_factory=list)
    failures: int = 0
    in_turn = interrupting = False

    def make_segmenter(self, rate_hz: int) -> Segmenter:
        return VadSegmenter(LoudVad(), PLAIN, rate_hz)

    def heard(self, heard: list[TurnItem]) -> None:
        for item in heard:
            self.told += item.wave.tolist() if isinstance(item, Sound) else [item]

    def listening_failed(self, error: Exception) -> None:
        self.failures += 1


def at_once(wave: Wave) -> list[Any]:
    listener = Listener()
    VadWorker(listener, None, FakeClock()).push(torch.from_numpy(wave), 16_000)
    return listener.told


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(["push", "thread", "loop", "now"]), st.integers(1, 4000)))
)
def test_order_does_not_depend_on_the_thread(moves: list[tuple[str, int]]) -> None:
    """The signals do not depend on the order of packets, thread, loop and synchronous calls."""

    async def story() -> None:
        threads, listener, first = Later(), Listener(), 0
        vad_worker = VadWorker(listener, threads, FakeClock())
        for move, amount in moves:
            if move == "push":
                vad_worker.push(torch.from_numpy(STREAM[first : first + amount]), 16_000)
                first += amount
            elif move == "thread":
                threads.step()
            elif move == "loop":
                await asyncio.sleep(0)
            else:
                vad_worker.catch_up()
                assert listener.told == at_once(STREAM[:first])
        vad_worker.catch_up()
        assert listener.told == at_once(STREAM[:first])
        while threads.step():  # those that were called off
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert listener.told == at_once(STREAM[:first]), "told twice"

    run(story())


def test_a_thread_that_does_not_come_to_it_holds_up_a_second_at_most() -> None:
    """Sound that waits longer than a second is processed by the next push, and none is lost."""

    async def story() -> None:
        listener = Listener()
        vad_worker = VadWorker(listener, Later(), FakeClock())
        for first in range(0, len(STREAM), 320):
            vad_worker.push(torch.from_numpy(STREAM[first : first + 320]), 16_000)
            assert sum(map(len, vad_worker._waiting)) <= 16_000
        assert listener.told == at_once(STREAM)[: len(listener.told)]
        vad_worker.catch_up()
        assert listener.told == at_once(STREAM)

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
def test_a_conversation_heard_on_a_thread(nano_lm: LanguageModel, packet: int) -> None:
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
        told = await story(None)
        assert sum(isinstance(event, SpeechStarted) for event in told) == 2
        assert await story(Later()) == told

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
def test_an_ear_that_fails(nano_lm: LanguageModel, threaded: bool, fails_at: int) -> None:
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


def test_closed_while_the_thread_listens(nano_lm: LanguageModel) -> None:
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
    from mosslive.talk.vad import SileroVad
    from mosslive.talk.vad_worker import vad_threads

    rng = np.random.default_rng(0)
    wave = torch.from_numpy(rng.normal(0, 0.1, 48_000).astype(np.float32))

    class Probabilities(Listener):
        def make_segmenter(self, rate_hz: int) -> Segmenter:
            vad, told = SileroVad(), self.told

            class TurnItem:
                def probability(self, frame: Wave) -> float:
                    told.append(vad.probability(frame))
                    return 0.0

                def reset(self) -> None:
                    vad.reset()

            return VadSegmenter(TurnItem(), PLAIN, rate_hz)

    async def story() -> None:
        one, other = Probabilities(), Probabilities()
        VadWorker(one, None, FakeClock()).push(wave, 48_000)
        vad_worker = VadWorker(other, vad_threads(), FakeClock())
        for first in range(0, len(wave), 960):
            vad_worker.push(wave[first : first + 960], 48_000)
            await asyncio.sleep(0)
        vad_worker.catch_up()
        assert len(one.told) == 31
        # Not bit by bit: threads may add up in another order.
        assert other.told == pytest.approx(one.told, abs=1e-5)

    run(story())
