"""The core's side of the fronts: runs the application for the connections that fronts forward.

The application sees scopes, `receive` and `send` as if this process had the socket; limits of
speed hold as well, because `send` waits while more than a window is not written yet. Runs on the
event loop of the core. Does not know the endpoints, nor how fronts are started. Invariant: when a
front is lost, each of its connections gets a disconnect message, and no other connection does.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Scope

from mosslive.server.connections import ABORT, EVENTS, WRITTEN
from mosslive.server.front.input_settings import INPUT
from mosslive.server.front.messages import Kind, Packet, Window, size_of, unpacked_scope

_SEND_BYTES, _SEND_MESSAGES = 64 << 10, 64  # sent and not written: as much as a socket buffers
_TAKEN_BYTES, _TAKEN_MESSAGES = 64 << 10, 64  # confirmed at once; less than the fronts' window
_LEFT: dict[str, Message] = {
    "http": {"type": "http.disconnect"},
    "websocket": {"type": "websocket.disconnect", "code": 1006},
}
_log = logging.getLogger("mosslive.fronts")


class Dispatcher:
    def __init__(self, app: ASGIApp, send: Callable[[Packet, bytes], None]) -> None:
        """`send`: a message to the front of that name."""
        self._app, self._send = app, send
        self._connections: dict[tuple[bytes, int], _Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, front: bytes, packet: Packet) -> None:
        """Handles a message about a connection."""
        kind, name = packet[0], packet[1]
        if kind == Kind.OPEN:
            self._open(front, name, packet[2])
        elif connection := self._connections.get((front, name)):
            connection.take(packet)

    def lost(self, front: bytes) -> None:
        """All connections of this front are gone."""
        for (owner, _), connection in list(self._connections.items()):
            if owner == front:
                connection.leave()

    async def ended(self, most_s: float | None = None) -> bool:
        """Waits until the application has ended for all connections, or for `most_s`. True: it
        has ended."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=most_s)
        return not self._tasks

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _open(self, front: bytes, name: int, data: Scope) -> None:
        def send(packet: Packet) -> None:
            self._send(packet, front)

        scope = unpacked_scope(data)
        connection = self._connections[front, name] = _Connection(name, scope, send)
        task = asyncio.get_running_loop().create_task(self._run(front, name, scope, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, front: bytes, name: int, scope: Scope, connection: "_Connection") -> None:
        failed = True
        try:
            await self._app(scope, connection.receive, connection.send)
            failed = False
        except Exception as error:
            if not (connection.gone and isinstance(error, OSError)):
                _log.error("the application failed", exc_info=error)
        finally:
            del self._connections[front, name]
            self._send([Kind.END, name, failed], front)


class _Connection:
    def __init__(self, name: int, scope: Scope, send: Callable[[Packet], None]) -> None:
        self._name, self._kind, self._send = name, scope["type"], send
        self._left = _LEFT[self._kind]
        scope["state"] = {}
        scope["extensions"] |= {ABORT: self.abort, WRITTEN: True, EVENTS: True, INPUT: self.input}
        self._received: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._reads = False
        self._taken = self._taken_bytes = 0
        self._window = Window(_SEND_BYTES, _SEND_MESSAGES)
        self._on_written: deque[Callable[[float], None] | None] = deque()
        self.gone = False

    def take(self, packet: Packet) -> None:
        kind: Kind = packet[0]
        if kind == Kind.RECEIVED:
            self._received.append(packet[2])
            self._arrived.set()
        elif kind == Kind.WRITTEN:
            self._window.release()
            if call := self._on_written.popleft():
                call(packet[2])
        elif kind == Kind.GONE:
            self.leave()

    def leave(self) -> None:
        """The client, or the front, is gone."""
        self.gone = True
        self._received.append(self._left)
        self._arrived.set()
        self._window.open()

    def abort(self) -> None:
        self._send([Kind.ABORT, self._name])

    def input(self, settings: dict[str, Any]) -> None:
        self._send([Kind.INPUT, self._name, settings])

    async def receive(self) -> Message:
        if not self._reads and self._kind == "http":
            self._send([Kind.READ, self._name])
        self._reads = True
        while not self._received:
            if self.gone:
                return self._left
            self._arrived.clear()
            await self._arrived.wait()
        message = self._received.popleft()
        self._taken += 1
        self._taken_bytes += size_of(message)
        if self._taken >= _TAKEN_MESSAGES or self._taken_bytes >= _TAKEN_BYTES:
            self._send([Kind.TAKEN, self._name, self._taken])
            self._taken = self._taken_bytes = 0
        return message

    async def send(self, message: Message) -> None:
        """Waits while too much is not written. Raises `OSError` if the client of a WebSocket is
        gone, as uvicorn does."""
        await self._window.wait()
        if self.gone:
            if self._kind == "websocket":
                raise ConnectionResetError("the client has left")
            return
        self._on_written.append(message.pop(WRITTEN, None))
        self._window.add(size_of(message))
        self._send([Kind.SEND, self._name, message])
