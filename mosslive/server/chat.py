"""`POST /v1/chat/completions`: a conversation in one request, with a spoken or a text reply.

Runs on the event loop; audio files are written on worker threads. Formats the reply; does not know
how a request is read (`chat_request.py`) or a reply is produced (`one_shot.py`).
"""

import asyncio
import base64
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, aclosing
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mosslive.errors import MossliveError
from mosslive.server.audio_files import write_file
from mosslive.server.chat_request import ChatRequest, read_chat
from mosslive.server.gaps import Gaps
from mosslive.server.one_shot import one_shot_reply, reply_rows, transcribe_turn
from mosslive.server.realtime import fields
from mosslive.server.realtime.formats import AudioFormat, Samples
from mosslive.server.realtime.usage import usage_of
from mosslive.server.requests import ClosingStream, bearer_of, body_of, state_of
from mosslive.server.server_state import ServerState
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import AudioChunk, Event, ReplyDone, TextDelta, TimingReady

_log = logging.getLogger("mosslive.http")
_OUTPUT = (TextDelta, AudioChunk, ReplyDone)


async def completions(request: Request) -> Response:
    server_state, owner = state_of(request), bearer_of(request).owner
    raw = await body_of(request)
    stream = fields.flag(raw, "stream", "", False)
    options = fields.record(raw, "stream_options", default={})
    with ExitStack() as stack:
        # Before any sound is encoded: a full or overloaded server refuses the request here.
        speaks = "audio" in fields.many(raw, "modalities", default=["text"])
        stack.enter_context(server_state.requests.take(owner, speaks))
        chat = await read_chat(server_state, owner, raw, stream)
        events = _events(server_state, chat, stack.pop_all())
    first = await anext(events)
    while not isinstance(first, _OUTPUT):  # the engine may still refuse the reply
        first = await anext(events)
    # From here on the response starts: an error before it has its own status.
    if stream:
        chunks = _streamed(server_state, chat, first, events, bool(options.get("include_usage")))
        return ClosingStream(chunks, events, "text/event-stream")
    async with aclosing(events):
        return JSONResponse(await _whole(server_state, chat, first, events))


async def _events(
    server_state: ServerState, chat: ChatRequest, slot: ExitStack
) -> AsyncGenerator[Event]:
    """The events of the reply; the transcript of a spoken one follows as `TextDelta`, and the reply
    is stored. Frees `slot` when it ends."""
    said: list[HistoryTurn] = []
    written = False
    reply = one_shot_reply(server_state.backend, chat.turns, chat.settings, chat.voice, said)
    with slot:
        async with aclosing(reply):
            async for event in reply:
                if isinstance(event, TimingReady):
                    server_state.metrics.turn(event.timing)
                written = written or isinstance(event, TextDelta)
                yield event
        chat.reply_rows = reply_rows(server_state.backend, said)
        if chat.reply != "speech" or not said:
            return
        if server_state.backend.transcripts and not written:
            yield TextDelta(0, await _transcript(server_state, said[0]))
        if said[0].kind == "speech":
            chat.expires_at = server_state.replies.put(chat.audio_id, chat.owner, said[0])


async def _transcript(server_state: ServerState, said: HistoryTurn) -> str:
    """Empty if it fails: the reply itself is there."""
    try:
        return await transcribe_turn(server_state.backend, said)
    except MossliveError as error:
        _log.warning("no transcript: %s", error)
        return ""


async def _whole(
    server_state: ServerState, chat: ChatRequest, first: Event, events: AsyncIterator[Event]
) -> dict[str, Any]:
    pieces: list[Samples] = []
    text = ""
    done = ReplyDone(0, "", 0, "stop")
    async for event in _joined(first, events):
        match event:
            case AudioChunk(pcm=pcm):
                pieces.append(pcm)
            case TextDelta(text=delta):
                text += delta
            case ReplyDone():
                done = event
    message: dict[str, Any] = {"role": "assistant", "content": done.text, "refusal": None}
    if chat.reply == "speech":
        wave = np.concatenate([*pieces, np.zeros(0, np.float32)])
        data = await asyncio.to_thread(
            write_file, wave, server_state.backend.rate_hz, chat.audio_format
        )
        message |= {
            "content": None,
            "audio": {
                "id": chat.audio_id,
                "data": base64.b64encode(data).decode(),
                "transcript": text,
                "expires_at": chat.expires_at or chat.created,
            },
        }
    choice = {"message": message, "finish_reason": _finish(done)}
    return chat.document("chat.completion", choice) | {"usage": _usage(chat, done)}


async def _streamed(
    server_state: ServerState,
    chat: ChatRequest,
    first: Event,
    events: AsyncIterator[Event],
    with_usage: bool,
) -> AsyncGenerator[str]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"delta": delta, "finish_reason": finish}
        return f"data: {json.dumps(chat.document('chat.completion.chunk', choice))}\n\n"

    gaps = Gaps(server_state.metrics.gap)
    spoken = chat.reply == "speech"
    opening: dict[str, Any] = {"audio": {"id": chat.audio_id}} if spoken else {"content": ""}
    yield chunk({"role": "assistant", **opening})
    done = ReplyDone(0, "", 0, "stop")
    async for event in _joined(first, events):
        match event:
            case TextDelta(_, text):
                yield chunk({"audio": {"transcript": text}} if spoken else {"content": text})
            case AudioChunk(pcm=pcm):
                data = base64.b64encode(AudioFormat().encode(pcm)).decode()
                yield chunk({"audio": {"data": data}})
                gaps.sent(chat.id, len(pcm), server_state.backend.rate_hz)
            case ReplyDone():
                done = event
    expires_at = chat.expires_at or chat.created
    yield chunk({"audio": {"expires_at": expires_at}} if spoken else {}, _finish(done))
    if with_usage:
        last = chat.document("chat.completion.chunk", {}) | {"choices": []}
        yield f"data: {json.dumps(last | {'usage': _usage(chat, done)})}\n\n"
    yield "data: [DONE]\n\n"


def _finish(done: ReplyDone) -> str:
    return "stop" if done.stop == "stop" else "length"


def _usage(chat: ChatRequest, done: ReplyDone) -> dict[str, Any]:
    usage = usage_of(chat.turns, done, None if chat.reply == "speech" else chat.reply_rows)
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }


async def _joined(first: Event, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    yield first
    async for event in events:
        yield event
