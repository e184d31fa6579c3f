"""uvicorn's connections, with an abort: for slow peers, and for peers that never send a request.

A normal close waits until the peer has read everything. A peer that does not read would block it
for ever, so its connection is aborted.

Runs on the event loop. Knows uvicorn's protocol classes; does not know the requests.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

HEAD_S = 20.0  # from connecting, or from a request's first byte, to the end of its headers
# Keys of an ASGI scope's extensions.
ABORT = "mosslive.abort"  # a function that closes the connection without flushing
EVENTS = "mosslive.events"  # true: messages may have an `event` instead of a text with its JSON
WRITTEN = "mosslive.written"  # a message may have a function of this name, called once written


def abort_connection(scope: Scope) -> None:
    """Closes the connection of a request or WebSocket at once, without flushing."""
    abort: Callable[[], None] | None = scope.get("extensions", {}).get(ABORT)
    if abort:
        abort()


def takes_events(scope: Scope) -> bool:
    """Whether a front holds the connection and converts events to JSON."""
    return bool(scope.get("extensions", {}).get(EVENTS))


async def send_and_confirm(
    websocket: WebSocket, message: Message, written: Callable[[float], None]
) -> None:
    """Sends a message; `written` is called with the time (`time.monotonic`) when the socket has
    taken it, which may be after this returns."""
    if websocket.scope.get("extensions", {}).get(WRITTEN):
        await websocket.send({**message, WRITTEN: written})
    else:
        await websocket.send(message)
        written(time.monotonic())


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Ends only if the peer is silent: its answer to a ping may wait behind events that the session
    has not taken yet, and nothing is read meanwhile."""

    _heard = False  # since the last ping, or since it was due

    def data_received(self, data: bytes) -> None:
        self._heard = True
        super().data_received(data)

    def send_keepalive_ping(self) -> None:
        self._heard = False
        super().send_keepalive_ping()

    def keepalive_timeout(self) -> None:
        if self.ping_timeout and (self.read_paused or self._heard):
            self._heard = False
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
        else:  # a close would wait for the peer, and a session that sends would fail meanwhile
            self.pong_timer = None
            self.transport.abort()

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if scope := getattr(self, "scope", None):
            scope["extensions"][ABORT] = self.transport.abort

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            # Refused with a response: uvicorn must not log it as a failed handshake.
            self.handshake_complete = True


class HttpConnection(H11Protocol):
    """Aborts itself if the headers of a request do not arrive within `HEAD_S`."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.app = _with_abort(self.app, transport.abort)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        has_request = self.cycle is not None and not self.cycle.response_complete
        upgraded = self.transport.get_protocol() is not self
        if has_request or upgraded:
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


def _with_abort(app: ASGIApp, abort: Callable[[], None]) -> ASGIApp:
    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[ABORT] = abort
        await app(scope, receive, send)

    return wrapped
