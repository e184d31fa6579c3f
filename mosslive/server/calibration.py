"""Measures the steps of every stage at start, so that the number of conversations is known before
the first of them.

A few conversations of a second are held with the language model, and a few replies are rendered and
turns heard with the codec, alone and several at once. The engine and the codec time their own steps
(`StepCosts`). On a GPU the two run one after the other: `capacity.py` adds their times. On a CPU
they run side by side, as they will later, so that each is as slow as the other makes it; two sizes
are enough there, because a CPU hardly gains by larger steps.

Runs on the event loop of its caller, before the server is ready. Knows no protocols and no limits.
"""

import asyncio
import logging
import math
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from mosslive.codec import Voice
from mosslive.codec.conformer import LOOK_AHEAD
from mosslive.config import SECONDS_PER_CODE, Sampling
from mosslive.engine import Engine
from mosslive.engine.conversation import Conversation
from mosslive.engine.step_costs import StepCosts
from mosslive.errors import MossliveError
from mosslive.rows import Row, Turn
from mosslive.server.capacity import STAGES
from mosslive.server.step_times import StepTimes
from mosslive.talk import CodecService, TalkSettings
from mosslive.talk.codec_streams import DecodeStream, EncodeStream

_log = logging.getLogger("mosslive.server")
_CPU_SIZES = (1, 2)
_GROWTH = 4  # from one size to the next on a GPU
_ROWS = 12  # decoded by each reply; the first is not measured
_PIECES = 4  # of 3 rows, prefilled; blocks of 80 ms, heard
_CHUNKS = 2  # rendered after the first


@dataclass
class _Measured:
    """Seconds by stage and size. Of several measurements of one size the slowest counts."""

    seconds: dict[str, dict[int, float]] = field(default_factory=dict)

    def add(self, costs: Mapping[str, StepCosts]) -> None:
        now = time.monotonic()
        for stage, cost in costs.items():
            known = self.seconds.setdefault(stage, {})
            for size, seconds in cost.fresh(now, least=1, within_s=math.inf).items():
                known[size] = max(seconds, known.get(size, 0.0))


async def calibrate(
    engine: Engine, codec: CodecService, voice: Voice, settings: TalkSettings, most: int
) -> dict[str, StepTimes] | None:
    """The times of steps of up to `most` conversations, by stage; None: they could not be
    measured."""
    on_gpu = codec.codec.device.type == "cuda"
    measured = _Measured()
    for size in _sizes(most) if on_gpu else _CPU_SIZES:
        generate = _generate(engine, settings.sampling, size)
        speak_and_hear = _speak_and_hear(codec, voice, settings, size)
        if on_gpu:
            await _tolerant(generate)
            await _tolerant(speak_and_hear)
        else:
            await asyncio.gather(_tolerant(generate), _tolerant(speak_and_hear))
        measured.add(engine.costs)
        measured.add(codec.costs)
    if not all(measured.seconds.get(stage) for stage in STAGES):
        _log.warning("the steps could not be measured: only overload limits the conversations")
        return None
    return {stage: StepTimes(measured.seconds[stage]) for stage in STAGES}


def _sizes(most: int) -> list[int]:
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(most, _GROWTH * sizes[-1]))
    return sizes


async def _tolerant(work: Coroutine[Any, Any, None]) -> None:
    with suppress(MossliveError):  # so many do not fit; what was measured until then counts
        await work


async def _generate(engine: Engine, sampling: Sampling, size: int) -> None:
    """So many conversations at once: rows are prefilled in pieces, as while a user speaks, and then
    replies are decoded."""
    prompt = engine.format.turn(Turn("user", text="Hello."))
    short = replace(sampling, min_new=_ROWS, max_new=_ROWS)
    conversations: list[Conversation] = []
    try:
        for _ in range(size):
            conversations.append(engine.open())
        for _ in range(_PIECES):
            for one in conversations:
                one.append(prompt[:3])
            for one in conversations:
                await one.settled()
        prefix = engine.format.reply_prefix("speech")
        await asyncio.gather(*(_reply(one, short, [*prompt, *prefix]) for one in conversations))
    finally:
        for one in conversations:
            one.close()


async def _reply(conversation: Conversation, sampling: Sampling, prefix: list[Row]) -> None:
    async for _ in conversation.reply(sampling, prefix):
        pass


async def _speak_and_hear(
    codec: CodecService, voice: Voice, settings: TalkSettings, size: int
) -> None:
    chunk, block = settings.chunk, torch.zeros(round(SECONDS_PER_CODE * codec.sample_rate))
    replies = [
        DecodeStream(codec, voice, chunk, settings.voice_seed, settings.tail) for _ in range(size)
    ]
    turns = [EncodeStream(codec, codec.sample_rate) for _ in range(size)]
    try:
        for number in range(1 + _CHUNKS):
            codes = [0] * (chunk + LOOK_AHEAD if number == 0 else chunk)
            due = time.monotonic()
            await asyncio.gather(*(one.push(codes, due) for one in replies))
        for _ in range(_PIECES):
            due = time.monotonic()
            await asyncio.gather(*(one.push(block, due) for one in turns))
    finally:
        for reply in replies:
            reply.close()
        for turn in turns:
            turn.close()
