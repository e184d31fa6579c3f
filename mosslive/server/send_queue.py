"""Bounded queue of the events that a client has yet to receive, in order.

A client that falls behind by more than the limit loses its connection; events are never dropped
silently. Used by two tasks on the event loop: the session puts, the transport's writer gets. Does
not know the transport.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable

from mosslive.server.api_errors import Event

OnSent = Callable[[float], None]  # takes the time, by `time.monotonic`


class SlowReader(Exception):
    """The client reads too slowly: the queue is over its limit."""


class SendQueue:
    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._waiting: deque[tuple[str, OnSent | None]] = deque()
        self._unconfirmed: deque[OnSent | None] = deque()  # of events that `get` has returned
        self._bytes = 0
        self._changed = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._overflow = False

    def put(self, event: Event, on_sent: OnSent | None = None) -> None:
        """Appends an event; `on_sent` is called with the time at which it was sent."""
        if self._overflow:
            return
        text = json.dumps(event, separators=(",", ":"))  # ASCII: one byte a character
        self._waiting.append((text, on_sent))
        self._bytes += len(text)
        self._emptied.clear()
        if self._bytes > self._most_bytes:
            self._overflow = True
            self._waiting.clear()
        self._changed.set()

    async def get(self) -> str:
        """Waits for the next event, as JSON. Raises `SlowReader` if the queue has overflowed."""
        while not self._waiting:
            if self._overflow:
                raise SlowReader
            self._changed.clear()
            await self._changed.wait()
        text, on_sent = self._waiting.popleft()
        self._unconfirmed.append(on_sent)
        self._bytes -= len(text)
        return text

    def confirm(self, now: float) -> None:
        """The oldest event that `get` returned and nobody confirmed was sent now."""
        if on_sent := self._unconfirmed.popleft():
            on_sent(now)
        if not self._waiting and not self._unconfirmed:
            self._emptied.set()

    async def emptied(self) -> None:
        """Waits until all events have been sent."""
        await self._emptied.wait()
