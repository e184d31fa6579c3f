"""`GET /v1/realtime` upgraded: one socket, one session.

One task reads, one writes, one follows the conversation; whichever ends first ends all. Knows
frames and limits, not what events mean.
"""

import asyncio
import json
import logging
import time

from starlette.websockets import WebSocket, WebSocketDisconnect

from mosslive.errors import MossliveError
from mosslive.server.access import wants_beta
from mosslive.server.api_errors import ApiError, as_api_error, error_event, read_json
from mosslive.server.connections import cut
from mosslive.server.gaps import Gaps
from mosslive.server.keys import Bearer
from mosslive.server.realtime.handlers import HANDLERS
from mosslive.server.realtime.session import Client, RealtimeSession
from mosslive.server.requests import error_response
from mosslive.server.run_session import CLIENT_LEFT, INTERNAL, POLICY, SessionEnd, run_session
from mosslive.server.send_queue import SendQueue, SlowReader
from mosslive.server.server_state import ServerState

_log = logging.getLogger("mosslive.session")


async def realtime(websocket: WebSocket) -> None:
    server_state: ServerState = websocket.app.state.server_state
    offered = list(websocket.scope.get("subprotocols", []))
    try:
        bearer = server_state.access.admit(websocket.headers, offered)
        with server_state.slots.take(bearer.owner):
            await _admitted(websocket, server_state, bearer, offered)
    except ApiError as api_error:
        server_state.metrics.refused(api_error.code or "other")
        _log.info("refused", extra={"code": api_error.code, "status": api_error.status})
        await websocket.send_denial_response(error_response(api_error))


async def _admitted(
    websocket: WebSocket, server_state: ServerState, bearer: Bearer, offered: list[str]
) -> None:
    backend, settings = server_state.backend, server_state.settings
    _check_address(websocket)
    send_queue = SendQueue(settings.send_queue_bytes)
    gaps = Gaps(server_state.metrics.gap)
    client = Client(
        bearer.owner,
        wants_beta(websocket.headers, offered),
        websocket.query_params.get("model"),
        bearer.session,
    )
    try:
        session = RealtimeSession(
            backend,
            client,
            lambda event: send_queue.put(event, gaps.of_event(event)),
            HANDLERS,
            server_state.metrics,
            expires_at=int(time.time() + settings.max_session_s),
        )
    except MossliveError as error:
        raise as_api_error(error) from None
    began = time.monotonic()
    server_state.metrics.sessions_total.labels("websocket").inc()
    server_state.metrics.sessions.labels("websocket").inc()
    try:
        await websocket.accept("realtime" if "realtime" in offered else None)
        session.log.info("session begins", extra={"beta": client.beta})
        leave = await run_session(
            server_state,
            session,
            _read(websocket, session, settings.idle_s),
            _write(websocket, send_queue, settings.send_timeout_s),
            delivered=send_queue.emptied,
            gone=(WebSocketDisconnect,),
        )
        session.log.info("session ends", extra={"code": leave.code, "reason": leave.reason})
        await _goodbye(websocket, leave)
    finally:
        server_state.metrics.sessions.labels("websocket").dec()
        server_state.metrics.session_seconds.observe(time.monotonic() - began)
        await session.close()


def _check_address(websocket: WebSocket) -> None:
    """What is asked for in the address and not held here must not become something else."""
    asked = websocket.query_params
    if "call_id" in asked:
        raise ApiError("a call has its own events; nobody else can join", "unsupported", "call_id")
    if asked.get("intent") == "transcription":
        raise ApiError("transcription sessions are not held", "unsupported", "intent")


async def _read(websocket: WebSocket, session: RealtimeSession, idle_s: float) -> None:
    while True:
        try:
            async with asyncio.timeout(idle_s):
                message = await websocket.receive()
        except TimeoutError:
            raise SessionEnd(POLICY, "idle for too long") from None
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        if text is None:
            api_error = ApiError("frames are text, one JSON object each", "invalid_frame")
            session.send_error(api_error)
            continue
        try:
            event = read_json(text, "frame")
        except ApiError as api_error:
            session.send_error(api_error)
            continue
        await session.handle(event)
        await asyncio.sleep(0)  # many may wait: other sessions go on between two of them


async def _write(websocket: WebSocket, send_queue: SendQueue, timeout_s: float) -> None:
    try:
        while True:
            text = await send_queue.get()
            async with asyncio.timeout(timeout_s):
                await websocket.send_text(text)
            await asyncio.sleep(0)  # a socket with room for all does not wait by itself
    except (SlowReader, TimeoutError):
        cut(websocket.scope)
        raise SessionEnd(POLICY, "the reader is too slow") from None


async def _goodbye(websocket: WebSocket, leave: SessionEnd) -> None:
    if leave.reason == CLIENT_LEFT:
        return
    try:
        async with asyncio.timeout(1):
            if leave.code == INTERNAL:
                api_error = ApiError(leave.reason, "internal_error", kind="server_error")
                await websocket.send_text(json.dumps(error_event(api_error)))
            await websocket.close(leave.code, leave.reason)
    except (TimeoutError, RuntimeError, WebSocketDisconnect):
        cut(websocket.scope)
