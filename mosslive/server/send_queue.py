"""What a session still owes its client: events in order, and no more than the client may owe us.

A reader that falls behind by more than the limit is dropped; nothing is kept for ever and nothing
is left out silently. Knows no transport.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable

from mosslive.server.api_errors import Event


class SlowReader(Exception):
    """The client does not read what it is sent."""


class SendQueue:
    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._waiting: deque[tuple[str, Callable[[], None] | None]] = deque()
        self._on_sent: Callable[[], None] | None = None  # of the event taken last
        self._bytes = 0
        self._news = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._overflow = False

    def put(self, event: Event, on_sent: Callable[[], None] | None = None) -> None:
        """`on_sent`: called when it was sent."""
        if self._overflow:
            return
        text = json.dumps(event, separators=(",", ":"))  # ASCII: one byte a character
        self._waiting.append((text, on_sent))
        self._bytes += len(text)
        self._emptied.clear()
        if self._bytes > self._most_bytes:
            self._overflow = True
            self._waiting.clear()
        self._news.set()

    async def get(self) -> str:
        """The next; whoever asks for it has sent the one before."""
        if self._on_sent:
            self._on_sent()
            self._on_sent = None
        while not self._waiting:
            if self._overflow:
                raise SlowReader
            self._emptied.set()
            self._news.clear()
            await self._news.wait()
        text, self._on_sent = self._waiting.popleft()
        self._bytes -= len(text)
        return text

    async def emptied(self) -> None:
        """Until everything was taken and sent."""
        await self._emptied.wait()
