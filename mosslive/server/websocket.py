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
from mosslive.server.gaps import Gaps
from mosslive.server.gate import wants_beta
from mosslive.server.holding import CLIENT_LEFT, INTERNAL, POLICY, Leave, hold
from mosslive.server.house import House
from mosslive.server.keys import Bearer
from mosslive.server.outbox import Outbox, SlowReader
from mosslive.server.realtime.handlers import HANDLERS
from mosslive.server.realtime.session import Client, RealtimeSession
from mosslive.server.requests import refusal_response
from mosslive.server.sockets import cut
from mosslive.server.wire import Refusal, as_refusal, error_event, read_json

_log = logging.getLogger("mosslive.session")


async def realtime(websocket: WebSocket) -> None:
    house: House = websocket.app.state.house
    offered = list(websocket.scope.get("subprotocols", []))
    try:
        bearer = house.gate.admit(websocket.headers, offered)
        with house.seats.take(bearer.owner):
            await _admitted(websocket, house, bearer, offered)
    except Refusal as refusal:
        house.metrics.refused(refusal.code or "other")
        _log.info("refused", extra={"code": refusal.code, "status": refusal.status})
        await websocket.send_denial_response(refusal_response(refusal))


async def _admitted(websocket: WebSocket, house: House, bearer: Bearer, offered: list[str]) -> None:
    backend, settings = house.backend, house.settings
    _check_address(websocket)
    outbox = Outbox(settings.send_queue_bytes)
    gaps = Gaps(house.metrics.gap)
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
            lambda event: outbox.put(event, gaps.of_event(event)),
            HANDLERS,
            house.metrics,
            expires_at=int(time.time() + settings.max_session_s),
        )
    except MossliveError as error:
        raise as_refusal(error) from None
    began = time.monotonic()
    house.metrics.sessions_total.labels("websocket").inc()
    house.metrics.sessions.labels("websocket").inc()
    try:
        await websocket.accept("realtime" if "realtime" in offered else None)
        session.log.info("session begins", extra={"beta": client.beta})
        leave = await hold(
            house,
            session,
            _read(websocket, session, settings.idle_s),
            _write(websocket, outbox, settings.send_timeout_s),
            delivered=outbox.emptied,
            gone=(WebSocketDisconnect,),
        )
        session.log.info("session ends", extra={"code": leave.code, "reason": leave.reason})
        await _goodbye(websocket, leave)
    finally:
        house.metrics.sessions.labels("websocket").dec()
        house.metrics.session_seconds.observe(time.monotonic() - began)
        await session.close()


def _check_address(websocket: WebSocket) -> None:
    """What is asked for in the address and not held here must not become something else."""
    asked = websocket.query_params
    if "call_id" in asked:
        raise Refusal("a call has its own events; nobody else can join", "unsupported", "call_id")
    if asked.get("intent") == "transcription":
        raise Refusal("transcription sessions are not held", "unsupported", "intent")


async def _read(websocket: WebSocket, session: RealtimeSession, idle_s: float) -> None:
    while True:
        try:
            async with asyncio.timeout(idle_s):
                message = await websocket.receive()
        except TimeoutError:
            raise Leave(POLICY, "idle for too long") from None
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        if text is None:
            refusal = Refusal("frames are text, one JSON object each", "invalid_frame")
            session.refuse(refusal)
            continue
        try:
            event = read_json(text, "frame")
        except Refusal as refusal:
            session.refuse(refusal)
            continue
        await session.handle(event)
        await asyncio.sleep(0)  # many may wait: other sessions go on between two of them


async def _write(websocket: WebSocket, outbox: Outbox, timeout_s: float) -> None:
    try:
        while True:
            text = await outbox.get()
            async with asyncio.timeout(timeout_s):
                await websocket.send_text(text)
            await asyncio.sleep(0)  # a socket with room for all does not wait by itself
    except (SlowReader, TimeoutError):
        cut(websocket.scope)
        raise Leave(POLICY, "the reader is too slow") from None


async def _goodbye(websocket: WebSocket, leave: Leave) -> None:
    if leave.reason == CLIENT_LEFT:
        return
    try:
        async with asyncio.timeout(1):
            if leave.code == INTERNAL:
                refusal = Refusal(leave.reason, "internal_error", kind="server_error")
                await websocket.send_text(json.dumps(error_event(refusal)))
            await websocket.close(leave.code, leave.reason)
    except (TimeoutError, RuntimeError, WebSocketDisconnect):
        cut(websocket.scope)
