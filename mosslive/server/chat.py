"""`POST /v1/chat/completions`: a conversation in one request, with a spoken or a text reply.

Runs on the event loop; audio files and long texts are read and written on worker threads. Parses
the request and formats the reply; does not know how a reply is produced (`one_shot.py`).
"""

import asyncio
import base64
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mosslive.codec import Sound, Voice
from mosslive.rows import ReplyKind, Role
from mosslive.server.api_errors import ApiError, new_id
from mosslive.server.audio_files import check_kind, read_base64, read_file, write_file
from mosslive.server.gaps import Gaps
from mosslive.server.one_shot import one_shot_reply, turn_of
from mosslive.server.realtime import fields
from mosslive.server.realtime.config import MOST_TOKENS
from mosslive.server.realtime.formats import AudioFormat, Samples
from mosslive.server.realtime.usage import usage_of
from mosslive.server.requests import ClosingStream, bearer_of, body_of, state_of
from mosslive.server.server_state import ServerState
from mosslive.server.speech import speaking_voice
from mosslive.talk import TalkSettings
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import AudioChunk, Event, ReplyDone, TextDelta, TimingReady

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_MOST_MESSAGES = 500
_TOTAL_FACTOR = 10  # all texts of a request together, in multiples of `max_text_chars`
_OUTPUT = (TextDelta, AudioChunk, ReplyDone)


@dataclass
class _ChatRequest:
    model: str
    turns: list[HistoryTurn]
    settings: TalkSettings
    voice: Voice | None
    audio_format: str
    reply: ReplyKind
    id: str = field(default_factory=lambda: new_id("chatcmpl"))
    audio_id: str = field(default_factory=lambda: new_id("audio"))
    created: int = field(default_factory=lambda: int(time.time()))

    def document(self, kind: str, choice: dict[str, Any]) -> dict[str, Any]:
        """A `chat.completion` or `chat.completion.chunk` object with one choice."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "logprobs": None} | choice],
        }


async def completions(request: Request) -> Response:
    server_state, owner = state_of(request), bearer_of(request).owner
    raw = await body_of(request)
    stream = fields.flag(raw, "stream", "", False)
    options = fields.record(raw, "stream_options", default={})
    with ExitStack() as stack:
        # Before any sound is encoded: a full or overloaded server refuses the request here.
        speaks = "audio" in fields.many(raw, "modalities", default=["text"])
        stack.enter_context(server_state.requests.take(owner, speaks))
        chat = await _read(server_state, owner, raw, stream)
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


async def _read(
    server_state: ServerState, owner: str, raw: dict[str, Any], stream: bool
) -> _ChatRequest:
    backend = server_state.backend
    modalities = fields.many(raw, "modalities", default=["text"])
    if not all(one in ("text", "audio") for one in modalities):
        raise fields.bad("modalities", modalities, "text, audio")
    if fields.whole(raw, "n", 1, 128, default=1) != 1:
        raise fields.bad("n", raw["n"], "1")
    reply: ReplyKind = "speech" if "audio" in modalities else "text"
    audio = fields.record(raw, "audio", default={})
    voice = speaking_voice(backend, audio.get("voice"), owner) if reply == "speech" else None
    audio_format = check_kind(audio.get("format") or ("pcm16" if stream else "wav"), "audio.format")
    if stream and audio_format != "pcm16":
        raise fields.bad("audio.format", audio_format, "pcm16 if stream is true")
    tokens = raw.get("max_completion_tokens", raw.get("max_tokens"))
    if tokens is not None:
        tokens = fields.whole({"max_tokens": tokens}, "max_tokens", 1, 1 << 30)
        tokens = min(tokens, MOST_TOKENS)
    temperature = fields.number(raw, "temperature", 0, 2, default=None)
    sampling = backend.sampling(tokens, None if temperature is None else max(0.01, temperature))
    settings = backend.talk_settings(reply, "", sampling)
    turns = await _turns(server_state, fields.many(raw, "messages"))
    for medium in {said.kind for said in turns if said.role == "user"}:
        backend.check_mode(medium, reply)
    if turns[0].role != "system":
        turns.insert(0, await turn_of(backend, "system", backend.instructions(reply)))
    model = fields.text(raw, "model", default=server_state.settings.name)
    return _ChatRequest(model, turns, settings, voice, audio_format, reply)


async def _turns(server_state: ServerState, messages: list[Any]) -> list[HistoryTurn]:
    if not 0 < len(messages) <= _MOST_MESSAGES:
        raise ApiError(
            f"messages has {len(messages)} entries; allowed: 1 to {_MOST_MESSAGES}",
            param="messages",
        )
    turns, chars = [], 0
    most = _TOTAL_FACTOR * server_state.settings.max_text_chars
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if not isinstance(message, dict):
            raise fields.bad(where, message, "an object with role and content")
        role = _ROLES[fields.choice(message.get("role"), tuple(_ROLES), f"{where}.role")]
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(parts, list) or not parts:
            raise fields.bad(f"{where}.content", content, "a string, or a list of parts")
        for part in parts:
            value = await _read_part(server_state, part, f"{where}.content")
            chars += len(value) if isinstance(value, str) else 0
            if chars > most:
                too_long = f"messages have {chars} characters; allowed: at most {most} in all"
                raise ApiError(too_long, param="messages")
            turns.append(await turn_of(server_state.backend, role, value))
    return turns


async def _read_part(server_state: ServerState, part: Any, where: str) -> str | Sound:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        text: str = fields.text(part, "text", f"{where}.")
        if len(text) > server_state.settings.max_text_chars:
            raise fields.bad(
                where, text, f"at most {server_state.settings.max_text_chars} characters"
            )
        return text
    if kind == "input_audio":
        audio = fields.record(part, "input_audio", f"{where}.")
        data = read_base64(fields.text(audio, "data", f"{where}.input_audio."), where)
        return await asyncio.to_thread(read_file, data, server_state.settings.max_upload_s, where)
    raise fields.bad(where, part, "a part of type text or input_audio")


async def _events(
    server_state: ServerState, chat: _ChatRequest, slot: ExitStack
) -> AsyncGenerator[Event]:
    """The events of the reply. Frees `slot` when it ends."""
    reply = one_shot_reply(server_state.backend, chat.turns, chat.settings, chat.voice)
    with slot:
        async with aclosing(reply):
            async for event in reply:
                if isinstance(event, TimingReady):
                    server_state.metrics.turn(event.timing)
                yield event


async def _whole(
    server_state: ServerState, chat: _ChatRequest, first: Event, events: AsyncIterator[Event]
) -> dict[str, Any]:
    pieces: list[Samples] = []
    done = ReplyDone(0, "", 0, "stop")
    async for event in _joined(first, events):
        if isinstance(event, AudioChunk):
            pieces.append(event.pcm)
        elif isinstance(event, ReplyDone):
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
                "transcript": done.text,
                "expires_at": chat.created,  # the server does not store it
            },
        }
    choice = {"message": message, "finish_reason": _finish(done)}
    return chat.document("chat.completion", choice) | {"usage": _usage(chat, done)}


async def _streamed(
    server_state: ServerState,
    chat: _ChatRequest,
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
    yield chunk({"audio": {"expires_at": chat.created}} if spoken else {}, _finish(done))
    if with_usage:
        last = chat.document("chat.completion.chunk", {}) | {"choices": []}
        yield f"data: {json.dumps(last | {'usage': _usage(chat, done)})}\n\n"
    yield "data: [DONE]\n\n"


def _finish(done: ReplyDone) -> str:
    return "stop" if done.stop == "stop" else "length"


def _usage(chat: _ChatRequest, done: ReplyDone) -> dict[str, Any]:
    usage = usage_of(chat.turns, done)
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }


async def _joined(first: Event, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    yield first
    async for event in events:
        yield event
