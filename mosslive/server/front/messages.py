"""The messages between the core and a front: packed ASGI messages and their flow control.

| message | from | meaning |
|---|---|---|
| HELLO | front | the front is ready for connections |
| CLOSED, n | front | n of the connections that it got are closed by now; at least once a second |
| OPEN, id, scope | front | a request or WebSocket begins |
| RECEIVED, id, message | front | what `receive` of the socket returned |
| WRITTEN, id, time | front | the oldest message not confirmed so far has been written then |
| GONE, id | front | the client has left; later messages for it are ignored |
| READ, id | core | the application wants the body of the request |
| TAKEN, id, n | core | the application has taken n messages |
| INPUT, id, settings | core | how to read the sound of the session; `input_settings.py` |
| SEND, id, message | core | what the application gave to `send` |
| ABORT, id | core | close the connection without flushing |
| END, id, failed | core | the application has returned, or raised an exception |
| STOP | core | close all connections and exit |

A message is a list. Besides the ASGI messages there are `websocket.send` and `websocket.receive`
with an `event`, whose sound is bytes, instead of a text with JSON. Pure functions and a counter,
used on the event loop. Knows ASGI's scopes; does not know the queue that carries messages.
"""

import asyncio
from collections import deque
from enum import IntEnum
from typing import Any

import msgpack
from starlette.types import Message, Scope

Packet = list[Any]  # [Kind, id, ...]


class Kind(IntEnum):
    HELLO = 0
    CLOSED = 1
    OPEN = 2
    RECEIVED = 3
    WRITTEN = 4
    GONE = 5
    READ = 6
    TAKEN = 7
    SEND = 8
    ABORT = 9
    END = 10
    STOP = 11
    INPUT = 12


def pack(packet: Packet) -> bytes:
    data: bytes = msgpack.packb(packet)
    return data


def unpack(data: bytes) -> Packet:
    packet: Packet = msgpack.unpackb(data)
    return packet


def packed_scope(scope: Scope) -> Scope:
    """The fields of a scope that another process can use: no functions and no state."""
    data = {name: value for name, value in scope.items() if name not in ("state", "extensions")}
    extensions = scope.get("extensions", {})
    data["extensions"] = [name for name, value in extensions.items() if not callable(value)]
    return data


def unpacked_scope(data: Scope) -> Scope:
    scope = {**with_tuples(data), "extensions": {name: {} for name in data["extensions"]}}
    for name in ("client", "server"):
        if scope.get(name) is not None:
            scope[name] = tuple(scope[name])
    return scope


def with_tuples(message: Message) -> Message:
    """Headers as pairs again; they travel as lists, and uvicorn compares them with pairs."""
    if "headers" not in message:
        return message
    return {**message, "headers": [(name, value) for name, value in message["headers"]]}


def size_of(message: Message) -> int:
    """About the bytes of an ASGI message."""
    if event := message.get("event"):
        return len(event.get("delta") or event.get("audio") or b"")
    return len(message.get("text") or message.get("bytes") or message.get("body") or b"")


class Window:
    """Bounds the messages on their way to the other process, in number and in bytes. A message of
    any size may go while the window is open."""

    def __init__(self, most_bytes: int, most: int) -> None:
        self._most_bytes, self._most = most_bytes, most
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._opened = asyncio.Event()
        self._opened.set()

    def add(self, size: int) -> None:
        self._sizes.append(size)
        self._bytes += size
        if self._bytes >= self._most_bytes or len(self._sizes) >= self._most:
            self._opened.clear()

    def grow(self, size: int) -> None:
        """More bytes join the message that was added last."""
        self._sizes[-1] += size
        self._bytes += size
        if self._bytes >= self._most_bytes:
            self._opened.clear()

    def release(self, count: int = 1) -> None:
        """The other process is done with the oldest `count` messages."""
        for _ in range(min(count, len(self._sizes))):
            self._bytes -= self._sizes.popleft()
        if self._bytes < self._most_bytes and len(self._sizes) < self._most:
            self._opened.set()

    def open(self) -> None:
        """Opens it for good: nothing is on its way any more."""
        self._sizes.clear()
        self._bytes = 0
        self._opened.set()

    async def wait(self) -> None:
        await self._opened.wait()
