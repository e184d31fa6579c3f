"""The ASGI application of a front: forwards each request and WebSocket to the core.

Each connection has two tasks: one reads from the socket while the window of the core is open, one
writes what the core sends. The core sends no more than its own window until the front has written,
so a slow client is noticed there as if the core had the socket. Runs on the event loop of a front.
Of the events of the Realtime protocol it knows the sound only.
"""

import asyncio
import time
from collections.abc import Callable
from itertools import count

from starlette.types import Message, Receive, Scope, Send

from mosslive.server.connections import abort_connection
from mosslive.server.event_text import event_text
from mosslive.server.front.client_events import with_event
from mosslive.server.front.messages import (
    Kind,
    Packet,
    Window,
    packed_scope,
    size_of,
    with_tuples,
)
from mosslive.server.front.speech_input import SpeechBatch, SpeechInput

_REALTIME = "/v1/realtime"
_READ_BYTES, _READ_MESSAGES = 256 << 10, 256  # received and not taken by the application


class CoreFailed(Exception):
    """The application raised an exception; the core has logged it."""


class Forwarder:
    def __init__(self, send: Callable[[Packet], None]) -> None:
        """`send`: to the core."""
        self._send = send
        self._connections: dict[int, _Connection] = {}
        self._ids = count(1)
        self._batch = SpeechBatch()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = next(self._ids)
        connection = self._connections[name] = _Connection(name, scope, self._send, self._batch)
        self._send([Kind.OPEN, name, packed_scope(scope)])
        reading = asyncio.get_running_loop().create_task(connection.read(receive))
        try:
            await connection.write(send)
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            del self._connections[name]
            if not connection.ended:
                self._send([Kind.GONE, name])

    def take(self, packet: Packet) -> None:
        """Handles a message of the core. The connection may be gone."""
        if connection := self._connections.get(packet[1]):
            connection.take(packet)


class _Connection:
    def __init__(
        self, name: int, scope: Scope, send: Callable[[Packet], None], batch: SpeechBatch
    ) -> None:
        self._name, self._scope, self._send = name, scope, send
        self._window = Window(_READ_BYTES, _READ_MESSAGES)
        self._wanted = asyncio.Event()  # a client that expects "100 Continue" must not get it early
        if scope["type"] == "websocket":
            self._wanted.set()
        self._input: SpeechInput | None = None
        if scope["type"] == "websocket" and scope["path"] == _REALTIME:
            self._input = SpeechInput(batch, self._forward)
        self._configured = asyncio.Event()  # the core has answered the last `session.update`
        self._configured.set()
        # The last one is a bool, whether the application has failed, or an error of `read`.
        self._waiting: asyncio.Queue[Message | bool | Exception] = asyncio.Queue()
        self.ended = False  # by the core

    def take(self, packet: Packet) -> None:
        kind = packet[0]
        if kind == Kind.SEND:
            self._waiting.put_nowait(packet[2])
        elif kind == Kind.TAKEN:
            self._window.release(packet[2])
        elif kind == Kind.INPUT and self._input:
            self._input.use(packet[2])
            self._configured.set()
        elif kind == Kind.READ:
            self._wanted.set()
        elif kind == Kind.ABORT:
            abort_connection(self._scope)
        elif kind == Kind.END:
            self.ended = True
            self._waiting.put_nowait(packet[2])

    async def read(self, receive: Receive) -> None:
        """Forwards until the client has left. An error ends the connection: `write` raises it."""
        try:
            await self._read(receive)
        except Exception as error:
            self._waiting.put_nowait(error)

    async def _read(self, receive: Receive) -> None:
        await self._wanted.wait()
        gone = False
        while not gone:
            await self._window.wait()
            message, updates = await receive(), False
            if self._input and message.get("text"):
                message, updates = await with_event(message)
            if updates:
                self._configured.clear()
            for part in self._input.parts(message) if self._input else (message,):
                self._push(part)
                if part is not message:
                    await asyncio.sleep(0)  # other clients are served between parts
            await self._configured.wait()
            gone = message["type"].endswith(".disconnect")

    def _push(self, message: Message) -> None:
        size = size_of(message)
        if self._input and self._input.push(message):
            self._window.grow(size)
        else:
            self._window.add(size)
        if not self._input:
            self._forward(message)

    def _forward(self, message: Message) -> None:
        self._send([Kind.RECEIVED, self._name, message])

    async def write(self, send: Send) -> None:
        """Writes until the application has ended. Raises what `send` raises if the client left."""
        while not isinstance(message := await self._waiting.get(), bool | Exception):
            if event := message.get("event"):
                message = {"type": message["type"], "text": event_text(event)}
            await send(with_tuples(message))
            self._send([Kind.WRITTEN, self._name, time.monotonic()])
            # Sending does not yield while the socket has room, and the loop would not get to report
            # that the client left.
            await asyncio.sleep(0)
        if isinstance(message, Exception):
            raise message
        if message:
            raise CoreFailed
