"""The queue of client events of a call, in the order in which they are handled.

Client events of our own (`put_own`) keep their place among those of the client. A data channel has
no backpressure, so the queue is bounded, and a client that exceeds the bound is disconnected. Runs
on the event loop. Knows messages, not what events mean.
"""

import asyncio
from collections import deque
from typing import Any

from mosslive.server.api_errors import ApiError, Event, read_json

_OVERHEAD = 256  # bytes of memory that a queued message costs besides its own


class InboxFull(Exception):
    """More messages are queued than allowed."""


class Inbox:
    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._waiting: deque[str | bytes | Event] = deque()
        self._bytes = 0
        self._overflowed = False
        self._news = asyncio.Event()

    def put(self, message: str | bytes) -> None:
        """Queues a message of the client."""
        self._bytes += _cost(message)
        if self._bytes > self._most_bytes:
            self._overflowed = True
            self._waiting.clear()
        if not self._overflowed:
            self._waiting.append(message)
        self._news.set()

    def put_own(self, event: Event) -> None:
        self._waiting.append(event)
        self._news.set()

    async def get(self) -> Any:
        """Returns the next event. Raises `ApiError` if the message is not JSON text, and
        `InboxFull` if the client has exceeded the bound."""
        while not self._waiting and not self._overflowed:
            self._news.clear()
            await self._news.wait()
        if self._overflowed:
            raise InboxFull
        message = self._waiting.popleft()
        if isinstance(message, dict):
            return message
        self._bytes -= _cost(message)
        if isinstance(message, bytes):
            raise ApiError("the message is binary; allowed: text, one JSON object", "invalid_frame")
        return read_json(message, "message")


def _cost(message: str | bytes) -> int:
    return len(message) + _OVERHEAD
