"""A line to a conversation in this process: `Talk` without a network.

Sound is paced as in `Talk`: handed out at most `lead_s` ahead of the listener. Every sample is
checked to be finite. Runs on the event loop of the engine's callers.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mosslive.bench.capacity.line import CallFailed, CallRefused, Ear, TurnEnds
from mosslive.bench.capacity.questions import RATE_HZ, Samples, packets, silence
from mosslive.codec.flow_pages import PoolFull
from mosslive.engine import EngineFull
from mosslive.errors import MossliveError
from mosslive.talk import FixedSilence, Talk, TalkSettings, TurnSettings
from mosslive.talk.events import (
    AudioChunk,
    ReplyDone,
    ReplyInterrupted,
    ReplyStarted,
    TalkFault,
)

Wave = NDArray[np.float32]
_RETRY_S = 1.0


class TalkLine:
    def __init__(
        self,
        make_talk: Callable[[TalkSettings], Talk],
        settings: TalkSettings,
        questions: list[list[Wave]],
        ends: TurnEnds,
    ) -> None:
        """`questions`: packets by question, see `waves`."""
        turns = TurnSettings(end=FixedSilence(ends.silence_ms / 1000)) if ends.detected else None
        self._make_talk, self._settings = make_talk, replace(settings, turns=turns)
        self._questions, self._silence = questions, as_wave(silence())
        self._talk: Talk | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, ear: Ear) -> None:
        try:
            self._talk = self._make_talk(self._settings)
        except EngineFull as full:
            raise CallRefused(str(full), _RETRY_S) from None
        self._reading = asyncio.get_running_loop().create_task(self._read(self._talk, ear))

    async def limit(self, codes: int) -> None:
        sampling = replace(self._settings.sampling, max_new=codes)
        self._call(lambda talk: talk.change(replace(self._settings, sampling=sampling)))

    async def send(self, question: int, packet: int) -> None:
        self._push(self._questions[question][packet])

    async def send_silence(self) -> None:
        self._push(self._silence)

    async def commit(self) -> None:
        self._call(lambda talk: talk.commit())

    async def interrupt(self, reply: str, active: bool, heard_s: float) -> None:
        if self._settings.turns is None:
            self._call(lambda talk: talk.cancel())

    async def close(self) -> None:
        if self._talk and self._reading:
            await self._talk.close()
            await self._reading

    def _push(self, wave: Wave) -> None:
        self._call(lambda talk: talk.push_audio(wave, RATE_HZ))

    def _call(self, work: Callable[[Talk], object]) -> None:
        assert self._talk is not None, "the line is open"
        try:
            work(self._talk)
        except MossliveError as error:
            raise CallFailed(str(error)) from None

    async def _read(self, talk: Talk, ear: Ear) -> None:
        async for event in talk.events():
            match event:
                case ReplyStarted():
                    ear.begun(str(event.turn))
                case AudioChunk():
                    good = bool(np.isfinite(event.pcm).all())
                    ear.sound(str(event.turn), len(event.pcm), good=good)
                case ReplyDone():
                    ear.ended(str(event.turn), "completed", codes=event.codes)
                case ReplyInterrupted():
                    ear.ended(str(event.turn), "cancelled")
                case TalkFault():
                    busy = isinstance(event.error, EngineFull | PoolFull)
                    status = "refused" if busy else "failed"
                    ear.ended(str(event.turn), status, fault=event.message)
                    if event.fatal:
                        ear.dropped(event.message)


def as_wave(samples: Samples) -> Wave:
    return samples.astype(np.float32) / np.float32(32768)


def waves(questions: list[Samples]) -> list[list[Wave]]:
    return [[as_wave(packet) for packet in packets(question)] for question in questions]
