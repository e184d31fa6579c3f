"""A line to a server over a WebSocket: the OpenAI Realtime protocol, GA form.

Needs the package websockets and nothing of the server. Events with sound are encoded beforehand;
of a delta only the length is read, except in replies that are checked whole. Runs on an event loop.
"""

import asyncio
import base64
import json
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from mosslive.bench.capacity.line import CallFailed, CallRefused, Ear, TurnEnds
from mosslive.bench.capacity.questions import Frames

_BUSY = (429, 503)  # of a refusal that says: try again
# Codes of errors that mean the same for one turn.
_BUSY_CODES = ("overloaded", "too_many", "rate_limit", "engine_full", "codec_full")
_CHECK_EVERY = 8  # of so many replies one is decoded
_OPEN_S = 30.0
_ENDED = {"completed": "completed", "incomplete": "completed", "cancelled": "cancelled"}


class SocketLine:
    def __init__(self, url: str, frames: Frames, ends: TurnEnds, key: str | None = None) -> None:
        self._url, self._frames, self._ends, self._key = url, frames, ends, key
        self._limit: int | None = None
        self._socket: ClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None
        self._items: dict[str, str] = {}  # item by reply
        self._begun = 0  # replies
        self._checked = ""  # the reply that is decoded
        self._loud = False  # it had sound

    async def open(self, ear: Ear) -> None:
        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            self._socket = await connect(
                self._url,
                additional_headers=headers,
                max_size=None,
                compression=None,  # sound does not compress, and it would cost the client's time
                open_timeout=_OPEN_S,
                close_timeout=2,
            )
        except InvalidStatus as refused:
            answer = refused.response
            if answer.status_code in _BUSY:
                retry_s = answer.headers.get("retry-after", "1")
                raise CallRefused(
                    f"HTTP {answer.status_code}", float(retry_s) if retry_s.isdecimal() else 1.0
                ) from None
            body = bytes(answer.body or b"")[:200].decode(errors="replace")
            raise CallFailed(f"{self._url}: HTTP {answer.status_code} {body}") from None
        except (OSError, InvalidHandshake, TimeoutError, ValueError) as error:
            raise CallFailed(f"{self._url}: {type(error).__name__}: {error}") from None
        detection: dict[str, Any] | None = None
        if self._ends.detected:
            detection = {"type": "server_vad", "silence_duration_ms": self._ends.silence_ms}
        audio = {"input": {"turn_detection": detection}}
        await self._send_event("session.update", session={"type": "realtime", "audio": audio})
        self._reading = asyncio.get_running_loop().create_task(self._read(self._socket, ear))

    async def limit(self, codes: int) -> None:
        if codes != self._limit and self._ends.detected:
            session = {"type": "realtime", "max_output_tokens": codes}
            await self._send_event("session.update", session=session)
        self._limit = codes

    async def send(self, question: int, packet: int) -> None:
        await self._send(self._frames.questions[question][packet])

    async def send_silence(self) -> None:
        await self._send(self._frames.silence)

    async def commit(self) -> None:
        await self._send_event("input_audio_buffer.commit")
        await self._send_event("response.create", response={"max_output_tokens": self._limit})

    async def interrupt(self, reply: str, active: bool, heard_s: float) -> None:
        if active and not self._ends.detected:
            await self._send_event("response.cancel")
        elif not active and reply in self._items:  # the server cannot know what was played
            await self._send_event(
                "conversation.item.truncate",
                item_id=self._items[reply],
                content_index=0,
                audio_end_ms=round(1000 * heard_s),
            )

    async def close(self) -> None:
        if self._reading and self._socket:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            await self._socket.close()

    async def _send_event(self, kind: str, **fields: Any) -> None:
        await self._send(json.dumps({"type": kind} | fields))

    async def _send(self, text: str) -> None:
        assert self._socket is not None, "the line is open"
        try:
            await self._socket.send(text)
        except ConnectionClosed as closed:
            raise CallFailed(f"the connection closed: {closed}") from None

    async def _read(self, socket: ClientConnection, ear: Ear) -> None:
        try:
            async for text in socket:
                self._take(json.loads(text), ear)
        except ConnectionClosed:
            pass
        ear.dropped(f"the server closed the connection: {socket.close_code} {socket.close_reason}")

    def _take(self, event: dict[str, Any], ear: Ear) -> None:
        match event["type"]:
            case "response.created":
                reply = event["response"]["id"]
                if self._begun % _CHECK_EVERY == 0:
                    self._checked, self._loud = reply, False
                self._begun += 1
                ear.begun(reply)
            case "response.output_audio.delta":
                reply, delta = event["response_id"], event["delta"]
                self._items[reply] = event["item_id"]
                if reply == self._checked:
                    self._loud |= _is_sound(delta)
                count = len(delta) // 4 * 3 - delta.count("=", -2)  # decoded bytes
                ear.sound(reply, count // 2, good=count % 2 == 0)
            case "response.done":
                self._end(event["response"], ear)

    def _end(self, response: dict[str, Any], ear: Ear) -> None:
        reply, status = response["id"], response["status"]
        if reply == self._checked and not self._loud:
            ear.sound(reply, 0, good=False)
        if status in _ENDED:
            tokens = (response.get("usage") or {}).get("output_token_details") or {}
            ear.ended(reply, _ENDED[status], codes=tokens.get("audio_tokens"))
            return
        error = (response.get("status_details") or {}).get("error") or {}
        code = str(error.get("code") or "")
        refused = any(name in code for name in _BUSY_CODES)
        fault = f"{code}: {error.get('message', '')}"
        ear.ended(reply, "refused" if refused else "failed", fault=fault)


def _is_sound(delta: str) -> bool:
    """Whether a delta is valid base64 of 16-bit samples that are not all equal."""
    try:
        samples = np.frombuffer(base64.b64decode(delta, validate=True), "<i2")
    except ValueError:
        return False
    return len(samples) > 0 and bool(np.any(samples != samples[0]))
