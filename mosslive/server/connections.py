"""Connections that can be cut, and are when they never say what they want.

Closing politely waits for a peer to read, and a peer that does not would be waited for for ever.
Knows uvicorn's protocols, and nothing of what they carry.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

HEAD_S = 20.0  # from a connection, or from the first byte of a request, to the end of its head
_CUT = "mosslive.cut"


def cut(scope: Scope) -> None:
    """Ends the connection of a request or a socket at once."""
    how: Callable[[], None] | None = scope.get("extensions", {}).get(_CUT)
    if how:
        how()


class Socket(WebSocketsSansIOProtocol):
    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if scope := getattr(self, "scope", None):
            scope["extensions"][_CUT] = self.transport.abort

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True  # refused, and told: no fault that has to be logged


class Connection(H11Protocol):
    _late: asyncio.TimerHandle | None = None  # cuts it

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.app = _with_cut(self.app, transport.abort)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        asked = self.cycle is not None and not self.cycle.response_complete
        upgraded = self.transport.get_protocol() is not self
        if asked or upgraded:
            self._stop_waiting()
        elif self._late is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._late = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._late:
            self._late.cancel()
            self._late = None


def _with_cut(app: ASGIApp, abort: Callable[[], None]) -> ASGIApp:
    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[_CUT] = abort
        await app(scope, receive, send)

    return wrapped
