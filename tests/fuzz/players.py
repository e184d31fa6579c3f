"""Plays a session over WebSocket, and finds the player of another transport.

A player never raises for what the server does: it writes it into the record. Runs on the event loop
of the fuzzer.
"""

import asyncio
import json
from contextlib import suppress

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.fuzz.player_http import check_refusal, play_http
from tests.fuzz.player_webrtc import play_webrtc
from tests.fuzz.record import ANSWER_S, Record
from tests.fuzz.script import Session
from tests.server.processes import Process


async def play(session: Session, served: Process) -> Record:
    record = Record(session)
    await asyncio.sleep(session.delay_s)
    if session.transport == "http":
        await play_http(record, served)
    elif session.transport == "webrtc":
        await play_webrtc(record, served)
    else:
        await _play_websocket(record, served)
    return record


async def _play_websocket(record: Record, served: Process) -> None:
    headers = {"OpenAI-Beta": "realtime=v1"} if record.session.transport == "beta" else {}
    try:
        # No pings of the client: they wait behind its events, as long as those take.
        socket = await connect(
            served.ws,
            max_size=None,
            additional_headers=headers,
            open_timeout=3 * ANSWER_S,
            ping_interval=None,
        )
    except InvalidStatus as refusal:
        answer = refusal.response
        check_refusal(
            record,
            httpx.Response(
                answer.status_code, content=bytes(answer.body or b""), headers=answer.headers
            ),
        )
        return
    except (TimeoutError, OSError, ConnectionClosed) as error:
        record.fail(f"silent: no handshake: {error!r}")
        return
    reading = asyncio.create_task(_Reader(record, socket).run())
    try:
        await _steps(record, socket, reading)
    finally:
        socket.transport.abort()
        await reading


class _Reader:
    """Reads all events, except while the client is deaf."""

    def __init__(self, record: Record, socket: ClientConnection) -> None:
        self._record, self._socket = record, socket

    async def run(self) -> None:
        try:
            async for message in self._socket:
                self._record.got(message)
        except ConnectionClosed:
            pass
        except Exception as error:
            self._record.fail(f"unreadable: {error!r}")
        self._record.close = self._socket.close_code or 0, self._socket.close_reason or ""
        self._record.wake()


async def _steps(record: Record, socket: ClientConnection, reading: "asyncio.Task[None]") -> None:
    for kind, value in record.session.steps:
        if record.close:
            break
        try:
            match kind:
                case "send":
                    await socket.send(json.dumps(record.fill(value)))
                case "raw":
                    await socket.send(value)
                case "bytes":
                    await socket.send(bytes(value))
                case "wait":
                    await asyncio.sleep(value)
                case "until":
                    await record.next_of(value)
                case "deaf":
                    socket.transport.pause_reading()
                    await asyncio.sleep(value)
                    socket.transport.resume_reading()
                case "leave" if value == "abort":
                    socket.transport.abort()
                    return
                case "leave":
                    await _close(record, socket)
                    return
        except ConnectionClosed:
            break
    if not record.close:
        with suppress(ConnectionClosed):
            await socket.send(json.dumps(record.question()))
        await record.finish()
    if record.close:
        check_close(record)
    else:
        await _close(record, socket)


async def _close(record: Record, socket: ClientConnection) -> None:
    """Leaves with a close frame. It is answered after the events that were sent before it."""
    closing = asyncio.create_task(socket.close())
    closing.add_done_callback(lambda _: record.wake())
    if not await record.progress(closing.done):
        record.fail("silent: no answer to the close frame")
        socket.transport.abort()
    await closing


def check_close(record: Record) -> None:
    """The server may end a session with a reason."""
    assert record.close is not None
    code, reason = record.close
    if code not in (1001, 1007, 1008, 1009) or not reason:
        record.fail(f"closed: {code} {reason!r}")
