"""Reads the body of a chat completion: options, messages, sound and references to earlier replies.

Runs on the event loop; audio files and long texts are read on worker threads. Does not know how a
reply is produced or formatted.
"""

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import Any

from mosslive.codec import Sound, Voice
from mosslive.config import SECONDS_PER_CODE
from mosslive.rows import ReplyKind, Role
from mosslive.server.api_errors import ApiError, new_id
from mosslive.server.audio_files import check_kind, read_base64, read_file
from mosslive.server.chat_options import check_message, check_options
from mosslive.server.one_shot import turn_of
from mosslive.server.realtime import fields
from mosslive.server.realtime.config import MOST_TOKENS
from mosslive.server.server_state import ServerState
from mosslive.server.speech import speaking_voice
from mosslive.talk import TalkSettings
from mosslive.talk.dialogue import HistoryTurn

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_MOST_MESSAGES = 500
_MOST_ROWS = 50_000  # of earlier replies in one request, more than any context has
_TOTAL_FACTOR = 10  # all texts of a request together, in multiples of `max_text_chars`


@dataclass
class ChatRequest:
    model: str
    owner: str
    turns: list[HistoryTurn]
    settings: TalkSettings
    voice: Voice | None
    audio_format: str
    reply: ReplyKind
    id: str = field(default_factory=lambda: new_id("chatcmpl"))
    audio_id: str = field(default_factory=lambda: new_id("audio"))
    created: int = field(default_factory=lambda: int(time.time()))
    expires_at: int = 0  # of the spoken reply, once it is stored
    reply_rows: int = 0  # that the model has produced, at the end

    def document(self, kind: str, choice: dict[str, Any]) -> dict[str, Any]:
        """A `chat.completion` or `chat.completion.chunk` object with one choice."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "logprobs": None} | choice],
        }


async def read_chat(
    server_state: ServerState, owner: str, raw: dict[str, Any], stream: bool
) -> ChatRequest:
    """Raises `ApiError` for a request that is malformed or asks for what the model cannot do."""
    check_options(raw)
    backend = server_state.backend
    modalities = fields.many(raw, "modalities", default=["text"])
    if not all(one in ("text", "audio") for one in modalities):
        raise fields.bad("modalities", modalities, "text, audio")
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
    if (top_p := fields.number(raw, "top_p", 0, 1, default=None)) is not None:
        sampling = replace(sampling, top_p=max(0.001, top_p))
    if (seed := fields.whole(raw, "seed", -(2**63), 2**63 - 1, default=None)) is not None:
        sampling = replace(sampling, seed=seed % 2**64)
    settings = backend.talk_settings(reply, "", sampling)
    turns = await _turns(server_state, owner, fields.many(raw, "messages"))
    for medium in {said.kind for said in turns if said.role == "user"}:
        backend.check_mode(medium, reply)
    if turns[0].role != "system":
        turns.insert(0, await turn_of(backend, "system", backend.instructions(reply)))
    model = fields.text(raw, "model", default=server_state.settings.name)
    return ChatRequest(model, owner, turns, settings, voice, audio_format, reply)


async def _turns(server_state: ServerState, owner: str, messages: list[Any]) -> list[HistoryTurn]:
    if not 0 < len(messages) <= _MOST_MESSAGES:
        raise ApiError(
            f"messages has {len(messages)} entries; allowed: 1 to {_MOST_MESSAGES}",
            param="messages",
        )
    turns: list[HistoryTurn] = []
    chars = rows = 0
    most = _TOTAL_FACTOR * server_state.settings.max_text_chars
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if not isinstance(message, dict):
            raise fields.bad(where, message, "an object with role and content")
        role = _ROLES[fields.choice(message.get("role"), tuple(_ROLES), f"{where}.role")]
        check_message(message, where)
        if role == "assistant" and message.get("audio") is not None:
            # Its sound stands for the whole message; a text beside it is the transcript.
            audio = fields.record(message, "audio", f"{where}.")
            audio_id = fields.text(audio, "id", f"{where}.audio.")
            turns.append(server_state.replies.get(audio_id, owner, f"{where}.audio.id"))
            rows += len(turns[-1].rows)
            if rows > _MOST_ROWS:
                seconds = round(_MOST_ROWS * SECONDS_PER_CODE)
                raise ApiError(
                    f"messages refer to more than {seconds} s of earlier speech; leave out the "
                    "oldest",
                    param=f"{where}.audio.id",
                )
            await asyncio.sleep(0)  # others run between two long replies
            continue
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
