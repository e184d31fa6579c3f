"""`POST /v1/audio/speech`: the model reads a text aloud.

There is no text-to-speech network: a system turn asks the model to read, the text is the user's
turn and the reading is the reply. Runs on the event loop; files are written on a worker thread.
Does not know how a reply is produced (`one_shot.py`).
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
from mosslive.server.api_errors import ApiError
from mosslive.server.audio_files import check_kind, media_type, write_file
from mosslive.server.backend import Backend
from mosslive.server.gaps import Gaps
from mosslive.server.one_shot import one_shot_reply, turn_of
from mosslive.server.realtime import fields
from mosslive.server.realtime.formats import AudioFormat, Samples
from mosslive.server.realtime.usage import usage_of
from mosslive.server.requests import ClosingStream, bearer_of, body_of, state_of
from mosslive.server.server_state import ServerState
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import AudioChunk, ReplyDone, TimingReady

_MOST_CHARS = 4096


async def speech(request: Request) -> Response:
    server_state, bearer = state_of(request), bearer_of(request)
    raw = await body_of(request)
    text = fields.text(raw, "input")
    if not 0 < len(text) <= _MOST_CHARS:
        message = f"input has {len(text)} characters; allowed: 1 to {_MOST_CHARS}"
        raise ApiError(message, param="input")
    kind = check_kind(raw.get("response_format") or "mp3", "response_format")
    fields.number(raw, "speed", 0.25, 4, default=1.0)  # accepted without effect
    as_events = fields.choice(
        raw.get("stream_format") or "audio", ("audio", "sse"), "stream_format"
    )
    voice = speaking_voice(server_state.backend, raw.get("voice"), bearer.owner)
    style = fields.text(raw, "instructions", default=None)
    system = READ_ALOUD_SYSTEM if not style else f"{READ_ALOUD_SYSTEM} {style}"
    turns = [
        await turn_of(server_state.backend, "system", system),
        await turn_of(server_state.backend, "user", text),
    ]
    chunks = _chunks(server_state, bearer.owner, turns, voice)
    first = await anext(
        chunks, None
    )  # raises before the response starts, so an error has its own status
    if as_events == "sse":
        return ClosingStream(_events(server_state, first, chunks), chunks, "text/event-stream")
    if kind in ("pcm", "pcm16"):
        return ClosingStream(_bytes(server_state, first, chunks), chunks, media_type(kind))
    async with aclosing(chunks):
        pieces = [chunk async for chunk in _joined(first, chunks)]
    wave = np.concatenate([p for p in pieces if not isinstance(p, dict)] or [np.zeros(0, "f4")])
    data = await asyncio.to_thread(write_file, wave, server_state.backend.rate_hz, kind)
    return Response(data, media_type=media_type(kind))


def speaking_voice(backend: Backend, requested: object, owner: str) -> Voice:
    """The requested voice, or the default. Raises `ApiError` if the server cannot speak."""
    stored = backend.voices.find("" if requested is None else requested, owner)
    if stored is None or backend.codec is None:
        message = "this server has no codec or no voice and cannot speak; request text instead"
        raise ApiError(message, "no_voice")
    return stored.voice


async def _chunks(
    server_state: ServerState, owner: str, turns: list[HistoryTurn], voice: Voice
) -> AsyncGenerator[Samples | dict[str, Any]]:
    """Yields the audio, then the usage."""
    backend = server_state.backend
    backend.check_mode("text", "speech")
    settings = backend.task_settings("speech")
    reply = one_shot_reply(backend, turns, settings, voice)
    with server_state.requests.take(owner):
        async with aclosing(reply):
            async for event in reply:
                match event:
                    case AudioChunk(pcm=pcm):
                        yield pcm
                    case ReplyDone():
                        usage = usage_of(turns, event)
                    case TimingReady(timing):
                        server_state.metrics.turn(timing)
        yield usage


async def _bytes(
    server_state: ServerState,
    first: Samples | dict[str, Any] | None,
    chunks: AsyncIterator[Samples | dict[str, Any]],
) -> AsyncGenerator[bytes]:
    gaps = Gaps(server_state.metrics.gap)
    async for chunk in _joined(first, chunks):
        if not isinstance(chunk, dict):
            yield AudioFormat().encode(chunk)
            gaps.sent("", len(chunk), server_state.backend.rate_hz)


async def _events(
    server_state: ServerState,
    first: Samples | dict[str, Any] | None,
    chunks: AsyncIterator[Samples | dict[str, Any]],
) -> AsyncGenerator[str]:
    gaps = Gaps(server_state.metrics.gap)
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
            gaps.sent("", len(chunk), server_state.backend.rate_hz)


async def _joined(
    first: Samples | dict[str, Any] | None, chunks: AsyncIterator[Samples | dict[str, Any]]
) -> AsyncIterator[Samples | dict[str, Any]]:
    if first is not None:
        yield first
    async for chunk in chunks:
        yield chunk
