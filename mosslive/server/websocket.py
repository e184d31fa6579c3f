"""The WebSocket transport at `/v1/realtime`: one connection, one session.

One task reads frames, one writes frames and one forwards events of the conversation, all on the
event loop; `run_session.py` runs them. Knows frames and limits; does not know what events mean.
"""

import asyncio
import json
import logging
import time

from starlette.websockets import WebSocket, WebSocketDisconnect

from mosslive.errors import MossliveError
from mosslive.server.access import wants_beta
from mosslive.server.api_errors import ApiError, as_api_error, error_event, read_json
from mosslive.server.connections import abort_connection, send_and_confirm, takes_events
from mosslive.server.front.input_settings import InputSettings
from mosslive.server.gaps import Gaps
from mosslive.server.keys import Bearer
from mosslive.server.realtime.config import with_intent
from mosslive.server.realtime.handlers import HANDLERS
from mosslive.server.realtime.session import Client, RealtimeSession
from mosslive.server.requests import error_response
from mosslive.server.run_session import CLIENT_LEFT, INTERNAL, POLICY, SessionEnd, run_session
from mosslive.server.send_queue import SendQueue, SlowReader
from mosslive.server.server_state import ServerState

_log = logging.getLogger("mosslive.session")


async def realtime(websocket: WebSocket) -> None:
    """Endpoint: checks access, takes a slot, serves the session; refuses with an HTTP response."""
    server_state: ServerState = websocket.app.state.server_state
    offered = list(websocket.scope.get("subprotocols", []))
    try:
        bearer = server_state.access.admit(websocket.headers, offered)
        with server_state.slots.take(bearer.owner):
            await _serve(websocket, server_state, bearer, offered)
    except ApiError as api_error:
        server_state.metrics.refused(api_error.code or "other")
        _log.info("refused", extra={"code": api_error.code, "status": api_error.status})
        await websocket.send_denial_response(error_response(api_error))


async def _serve(
    websocket: WebSocket, server_state: ServerState, bearer: Bearer, offered: list[str]
) -> None:
    backend, settings = server_state.backend, server_state.settings
    _check_query(websocket)
    send_queue = SendQueue(settings.send_queue_bytes, takes_events(websocket.scope))
    gaps = Gaps(server_state.metrics.gap)
    client = Client(
        bearer.owner,
        wants_beta(websocket.headers, offered),
        websocket.query_params.get("model"),
        with_intent(bearer.session, websocket.query_params.get("intent")),
    )
    try:
        session = RealtimeSession(
            backend,
            client,
            lambda event: send_queue.put(event, gaps.of_event(event)),
            HANDLERS,
            server_state.metrics,
            gap_reports=gaps.reports,
            expires_at=int(time.time() + settings.max_session_s),
        )
    except MossliveError as error:
        raise as_api_error(error) from None
    began = time.monotonic()
    server_state.metrics.sessions_total.labels("websocket").inc()
    server_state.metrics.sessions.labels("websocket").inc()
    try:
        input_settings = InputSettings(websocket.scope, session)
        await websocket.accept("realtime" if "realtime" in offered else None)
        session.log.info("session begins", extra={"beta": client.beta})
        end = await run_session(
            server_state,
            session,
            _read(websocket, session, input_settings, settings.idle_s),
            _write(websocket, send_queue, settings.send_timeout_s),
            delivered=send_queue.emptied,
            disconnects=(WebSocketDisconnect,),
        )
        session.log.info("session ends", extra={"code": end.code, "reason": end.reason})
        await _close(websocket, end)
    finally:
        server_state.metrics.sessions.labels("websocket").dec()
        server_state.metrics.session_seconds.observe(time.monotonic() - began)
        gaps.close()
        await session.close()


def _check_query(websocket: WebSocket) -> None:
    """Refuses a query parameter that this server does not have."""
    if "call_id" in websocket.query_params:
        message = "call_id is not supported; use the data channel of the WebRTC call"
        raise ApiError(message, "unsupported", "call_id")


async def _read(
    websocket: WebSocket, session: RealtimeSession, input_settings: InputSettings, idle_s: float
) -> None:
    while True:
        try:
            async with asyncio.timeout(idle_s):
                message = await websocket.receive()
        except TimeoutError:
            raise SessionEnd(POLICY, "idle for too long") from None
        if message["type"] == "websocket.disconnect":
            return
        if event := message.get("event"):  # a front has read it
            await session.handle(event)
            await asyncio.sleep(0)
            continue
        text = message.get("text")
        if text is None:
            message_text = "the frame is binary; allowed: text frames with one JSON object each"
            session.send_error(ApiError(message_text, "invalid_frame"))
            continue
        try:
            event = read_json(text, "frame")
        except ApiError as api_error:
            session.send_error(api_error)
            continue
        await session.handle(event)
        input_settings.handled(event)
        await asyncio.sleep(0)  # many frames may be waiting: let other sessions run


async def _write(websocket: WebSocket, send_queue: SendQueue, timeout_s: float) -> None:
    try:
        while True:
            event = await send_queue.get()
            field = "text" if isinstance(event, str) else "event"
            async with asyncio.timeout(timeout_s):
                message = {"type": "websocket.send", field: event}
                await send_and_confirm(websocket, message, send_queue.confirm)
            await asyncio.sleep(0)  # sending does not yield while the socket has room
    except (SlowReader, TimeoutError):
        abort_connection(websocket.scope)
        raise SessionEnd(POLICY, "the reader is too slow") from None


async def _close(websocket: WebSocket, end: SessionEnd) -> None:
    if end.reason == CLIENT_LEFT:
        return
    try:
        async with asyncio.timeout(1):
            if end.code == INTERNAL:
                api_error = ApiError(end.reason, "internal_error", kind="server_error")
                await websocket.send_text(json.dumps(error_event(api_error)))
            await websocket.close(end.code, end.reason)
    except (TimeoutError, RuntimeError, WebSocketDisconnect):
        abort_connection(websocket.scope)
