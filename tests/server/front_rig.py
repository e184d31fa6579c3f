"""A front and a core in one event loop, without processes and without ZeroMQ."""

import asyncio
from collections import deque
from typing import Any

from starlette.types import ASGIApp, Message

from mosslive.server.front.dispatcher import Dispatcher
from mosslive.server.front.forwarder import Forwarder
from mosslive.server.front.messages import pack, unpack

NAME = b"front"


class Pipe:
    """Forwards all connections of a front to `app`."""

    def __init__(self, app: ASGIApp) -> None:
        loop = asyncio.get_running_loop()
        self.to_core: list[list[Any]] = []  # all messages, for assertions

        def to_core(packet: list[Any]) -> None:
            self.to_core.append(packet)
            loop.call_soon(self.core.take, NAME, unpack(pack(packet)))

        def to_front(packet: list[Any], front: bytes) -> None:
            assert front == NAME
            loop.call_soon(self.front.take, unpack(pack(packet)))

        self.front = Forwarder(to_core)
        self.core = Dispatcher(app, to_front)


class Socket:
    """A client's connection. Writes wait while `blocked`."""

    def __init__(self) -> None:
        self.written: list[Message] = []
        self.incoming: deque[Message] = deque()
        self.writable = asyncio.Event()
        self.writable.set()
        self._arrived = asyncio.Event()
        self.aborted = False

    def scope(self, kind: str = "websocket") -> dict[str, Any]:
        return {
            "type": kind,
            "path": "/",
            "headers": [(b"host", b"x")],
            "client": ("127.0.0.1", 1),
            "state": {"not": object()},
            "extensions": {"mosslive.abort": self.abort},
        }

    def abort(self) -> None:
        self.aborted = True
        self.push({"type": "websocket.disconnect", "code": 1006})

    def push(self, message: Message) -> None:
        self.incoming.append(message)
        self._arrived.set()

    async def receive(self) -> Message:
        while not self.incoming:
            self._arrived.clear()
            await self._arrived.wait()
        return self.incoming.popleft()

    async def send(self, message: Message) -> None:
        await self.writable.wait()
        self.written.append(message)
