"""Runs `mosslive demo`: sends a recording in real time and transcribes the spoken answer.

Needs a model folder with all parts. Prints nothing.
"""

import asyncio
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mosslive.checkpoint.generation import folder_sampling
from mosslive.codec import Sound, load_codec
from mosslive.config.folders import Parts
from mosslive.engine import Engine
from mosslive.engine.device_priority import DevicePriority
from mosslive.errors import MossliveError
from mosslive.rows import WRITE_DOWN_SYSTEM
from mosslive.talk import CodecService, Talk, TalkSettings
from mosslive.talk.events import AudioChunk, ReplyDone, TalkFault, TimingReady
from mosslive.talk.timing import TurnTiming

_PIECE_S = 0.02  # seconds per push, as from a microphone
_SILENCE_S = 0.2  # appended before transcription, since live turns also end in silence


@dataclass(frozen=True)
class Answer:
    sound: NDArray[np.float32]
    rate_hz: int
    text: str  # of a text reply
    timing: TurnTiming


async def ask(parts: Parts, question: Sound) -> tuple[Answer, str]:
    """The spoken answer, and the model's own transcript of it."""
    if parts.codec is None or parts.voice is None:
        raise MossliveError(f"{parts.model}: no codec or no voice; a spoken answer needs both")
    codec = load_codec(parts.codec)
    voice = codec.voice(parts.voice)
    sampling = replace(folder_sampling(parts.model), ignored_audio="pad")
    settings = TalkSettings(sampling=sampling, turns=None, lead_s=None)
    listener = replace(settings, reply="text", system=WRITE_DOWN_SYSTEM)
    priority = DevicePriority()  # of the two on one device
    thread = CodecService(codec, priority=priority)
    try:
        await thread.warm(voice, settings.chunk)
        async with Engine.load(parts.model, priority=priority) as engine:
            answer = await _ask(Talk(engine, thread, voice, settings), question, in_real_time=True)
            silence = np.zeros(round(_SILENCE_S * answer.rate_hz), np.float32)
            heard_as = np.concatenate((answer.sound, silence))
            said = Sound(heard_as, answer.rate_hz)  # type: ignore[arg-type]
            heard = await _ask(Talk(engine, thread, None, listener), said, in_real_time=False)
    finally:
        await thread.close()
    return answer, heard.text


async def _ask(talk: Talk, question: Sound, in_real_time: bool) -> Answer:
    assert talk.codec is not None
    piece = round(_PIECE_S * question.rate_hz)
    try:
        for first in range(0, len(question.wave), piece):
            talk.push_audio(question.wave[first : first + piece], question.rate_hz)
            # In real time, so that encoding the question is not part of the measured delay.
            await asyncio.sleep(_PIECE_S if in_real_time else 0)
        talk.commit()
        sound, text = [np.zeros(0, np.float32)], ""
        async for event in talk.events():
            match event:
                case AudioChunk(pcm=pcm):
                    sound.append(pcm)
                case ReplyDone(text=written):
                    text = written
                case TalkFault(message=message):
                    raise MossliveError(message)
                case TimingReady(timing):
                    break
    finally:
        await talk.close()
    return Answer(np.concatenate(sound), talk.codec.sample_rate, text, timing)
