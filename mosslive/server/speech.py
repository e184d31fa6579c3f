"""`POST /v1/audio/speech`: the model reads a text aloud, because it is asked to.

There is no text-to-speech network here: the text is a turn, and reading it is the reply.
"""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from mosslive.codec import Voice
from mosslive.rows import READ_ALOUD_SYSTEM
from mosslive.server.backend import Backend
from mosslive.server.gaps import Gaps
from mosslive.server.house import House
from mosslive.server.once import reply_once, turn_of
from mosslive.server.realtime import fields
from mosslive.server.realtime.formats import AudioFormat, Samples
from mosslive.server.realtime.usage import usage_of
from mosslive.server.requests import Streamed, bearer_of, body_of, house_of
from mosslive.server.sounds import check_kind, media_type, write_file
from mosslive.server.wire import Refusal
from mosslive.talk.dialogue import Said
from mosslive.talk.events import AudioChunk, ReplyDone, TimingReady

_MOST_CHARS = 4096


async def speech(request: Request) -> Response:
    house, bearer = house_of(request), bearer_of(request)
    raw = await body_of(request)
    text = fields.text(raw, "input")
    if not 0 < len(text) <= _MOST_CHARS:
        raise Refusal(f"input: 1 to {_MOST_CHARS} characters", param="input")
    kind = check_kind(raw.get("response_format") or "mp3", "response_format")
    fields.number(raw, "speed", 0.25, 4, default=1.0)  # accepted, and not in force
    as_events = fields.choice(
        raw.get("stream_format") or "audio", ("audio", "sse"), "stream_format"
    )
    voice = speaking_voice(house.backend, raw.get("voice"), bearer.owner)
    manner = fields.text(raw, "instructions", default=None)
    system = READ_ALOUD_SYSTEM if not manner else f"{READ_ALOUD_SYSTEM} {manner}"
    turns = [
        await turn_of(house.backend, "system", system),
        await turn_of(house.backend, "user", text),
    ]
    chunks = _chunks(house, bearer.owner, turns, voice)
    first = await anext(chunks, None)  # a refusal still has a status of its own
    if as_events == "sse":
        return Streamed(_events(house, first, chunks), chunks, "text/event-stream")
    if kind in ("pcm", "pcm16"):
        return Streamed(_bytes(house, first, chunks), chunks, media_type(kind))
    async with aclosing(chunks):
        pieces = [chunk async for chunk in _joined(first, chunks)]
    wave = np.concatenate([p for p in pieces if not isinstance(p, dict)] or [np.zeros(0, "f4")])
    data = await asyncio.to_thread(write_file, wave, house.backend.rate_hz, kind)
    return Response(data, media_type=media_type(kind))


def speaking_voice(backend: Backend, asked: object, owner: str) -> Voice:
    shelved = backend.voices.find("" if asked is None else asked, owner)
    if shelved is None or backend.codec is None:
        raise Refusal("this server has no codec or no voice: it cannot speak", "no_voice")
    return shelved.voice


async def _chunks(
    house: House, owner: str, turns: list[Said], voice: Voice
) -> AsyncGenerator[Samples | dict[str, Any]]:
    """The sound, and at last its usage."""
    backend = house.backend
    backend.check_mode("text", "speech")
    settings = backend.task_settings("speech")
    reply = reply_once(backend, turns, settings, voice)
    with house.requests.take(owner):
        async with aclosing(reply):
            async for event in reply:
                match event:
                    case AudioChunk(pcm=pcm):
                        yield pcm
                    case ReplyDone():
                        usage = usage_of(turns, event)
                    case TimingReady(timing):
                        house.metrics.turn(timing)
        yield usage


async def _bytes(
    house: House,
    first: Samples | dict[str, Any] | None,
    chunks: AsyncIterator[Samples | dict[str, Any]],
) -> AsyncGenerator[bytes]:
    gaps = Gaps(house.metrics.gap)
    async for chunk in _joined(first, chunks):
        if not isinstance(chunk, dict):
            yield AudioFormat().encode(chunk)
            gaps.sent("", len(chunk) / house.backend.rate_hz)


async def _events(
    house: House,
    first: Samples | dict[str, Any] | None,
    chunks: AsyncIterator[Samples | dict[str, Any]],
) -> AsyncGenerator[str]:
    gaps = Gaps(house.metrics.gap)
    async for chunk in _joined(first, chunks):
        event: dict[str, Any]
        if isinstance(chunk, dict):
            names = ("input_tokens", "output_tokens", "total_tokens")
            usage = {name: chunk[name] for name in names}
            event = {"type": "speech.audio.done", "usage": usage}
        else:
            data = base64.b64encode(AudioFormat().encode(chunk)).decode()
            event = {"type": "speech.audio.delta", "audio": data}
        yield f"data: {json.dumps(event)}\n\n"
        if not isinstance(chunk, dict):
            gaps.sent("", len(chunk) / house.backend.rate_hz)


async def _joined(
    first: Samples | dict[str, Any] | None, chunks: AsyncIterator[Samples | dict[str, Any]]
) -> AsyncIterator[Samples | dict[str, Any]]:
    if first is not None:
        yield first
    async for chunk in chunks:
        yield chunk
