"""Events of a client, and our own among them, in the order in which they are to be handled.

A data channel cannot be told to wait, so no more than a limit is kept here, and a client that goes
beyond it is not served any more. Knows frames, not what events mean.
"""

import asyncio
from collections import deque
from typing import Any

from mosslive.server.api_errors import ApiError, Event, read_json

_OVERHEAD = 256  # bytes that a waiting message costs us beside its own


class Flood(Exception):
    """More came than may wait."""


class Inbox:
    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._waiting: deque[str | bytes | Event] = deque()
        self._bytes = 0
        self._flood = False
        self._news = asyncio.Event()

    def put(self, message: str | bytes) -> None:
        """What the client sent."""
        self._bytes += _cost(message)
        if self._bytes > self._most_bytes:
            self._flood = True
            self._waiting.clear()
        if not self._flood:
            self._waiting.append(message)
        self._news.set()

    def put_own(self, event: Event) -> None:
        self._waiting.append(event)
        self._news.set()

    async def get(self) -> Any:
        """The next event; raises a refusal if it is not one, `Flood` if too much came."""
        while not self._waiting and not self._flood:
            self._news.clear()
            await self._news.wait()
        if self._flood:
            raise Flood
        message = self._waiting.popleft()
        if isinstance(message, dict):
            return message
        self._bytes -= _cost(message)
        if isinstance(message, bytes):
            raise ApiError("messages are text, one JSON object each", "invalid_frame")
        return read_json(message, "message")


def _cost(message: str | bytes) -> int:
    return len(message) + _OVERHEAD
