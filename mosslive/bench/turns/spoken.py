"""The built-in utterances of `mosslive bench turns`: answers that the bundled model speaks.

Each is a whole sentence in one synthetic voice, so the set is there in every clone. Decoding is
greedy: the same sentences in every run. Takes some seconds on a CPU. Knows no turn detection.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from mosslive.bench.turns.recordings import Speaker, Wave, trimmed
from mosslive.checkpoint.generation import folder_sampling
from mosslive.codec import load_codec
from mosslive.codec.resample import resample
from mosslive.config.folders import Parts
from mosslive.engine import Engine
from mosslive.engine.device_priority import DevicePriority
from mosslive.errors import MossliveError
from mosslive.talk import CodecService, Talk, TalkSettings
from mosslive.talk.events import AudioChunk, TalkFault, TimingReady
from mosslive.talk.vad import VAD_HZ

# Of the topics of the bundled model; their answers are sentences of two to five seconds.
QUESTIONS = (
    "What is the capital of Germany?",
    "What is the capital of Japan?",
    "Who are you?",
    "What can you do?",
    "What is seven plus five?",
    "What is the opposite of hot?",
    "What day comes after Monday?",
    "How many legs does a spider have?",
    "What sound does a cow make?",
    "What color is the sky?",
    "Can a penguin fly?",
    "Count to five.",
)


def bundled_speaker(parts: Parts, questions: Sequence[str] = QUESTIONS) -> Speaker:
    return Speaker("bundled voice", asyncio.run(_answers(parts, questions)))


async def _answers(parts: Parts, questions: Sequence[str]) -> list[Wave]:
    if parts.codec is None or parts.voice is None:
        raise MossliveError(f"{parts.model}: no codec or no voice; use --recordings")
    codec = load_codec(parts.codec)
    voice, priority = codec.voice(parts.voice), DevicePriority()
    sampling = replace(folder_sampling(parts.model), ignored_audio="pad")
    settings = TalkSettings(sampling=sampling, turns=None, lead_s=None)
    service = CodecService(codec, priority=priority)
    try:
        async with Engine.load(parts.model, priority=priority) as engine:
            spoken = []
            for question in questions:
                talk = Talk(engine, service, voice, settings)
                try:
                    spoken.append(await _answer(talk, question))
                finally:
                    await talk.close()
    finally:
        await service.close()
    waves = (resample(torch.from_numpy(wave), codec.sample_rate, VAD_HZ) for wave in spoken)
    return [trimmed(wave.numpy()) for wave in waves]


async def _answer(talk: Talk, question: str) -> Wave:
    talk.push_text(question)
    pieces = [np.zeros(0, np.float32)]
    async for event in talk.events():
        match event:
            case AudioChunk(pcm=pcm):
                pieces.append(pcm)
            case TalkFault(message=message):
                raise MossliveError(message)
            case TimingReady():
                break
    return np.concatenate(pieces)
