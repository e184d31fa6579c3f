"""Bounded queue of the events that a client has yet to receive, in order.

A client that falls behind by more than the limit loses its connection; events are never dropped
silently. Used by two tasks on the event loop: the session puts, the transport's writer gets. Does
not know the transport.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from mosslive.server.api_errors import Event
from mosslive.server.event_text import event_text, text_bytes

OnSent = Callable[[float], None]  # takes the time, by `time.monotonic`


class SlowReader(Exception):
    """The client reads too slowly: the queue is over its limit."""


class SendQueue:
    def __init__(self, most_bytes: int, keeps_sound: bool = False) -> None:
        """`keeps_sound`: events with sound are not converted to JSON; a front does that."""
        self._most_bytes, self._keeps_sound = most_bytes, keeps_sound
        self._waiting: deque[tuple[Event | str, int, OnSent | None]] = deque()
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
        if self._keeps_sound and isinstance(sound := event.get("delta"), bytes):
            self._waiting.append((event, size := text_bytes(sound), on_sent))
        else:
            text = event_text(event)
            self._waiting.append((text, size := len(text), on_sent))
        self._bytes += size
        self._emptied.clear()
        if self._bytes > self._most_bytes:
            self._overflow = True
            self._waiting.clear()
        self._changed.set()

    async def get(self) -> Event | str:
        """Waits for the next event, as JSON unless it keeps its sound. Raises `SlowReader` if the
        queue has overflowed."""
        while not self._waiting:
            if self._overflow:
                raise SlowReader
            self._changed.clear()
            await self._changed.wait()
        event, size, on_sent = self._waiting.popleft()
        self._unconfirmed.append(on_sent)
        self._bytes -= size
        return event

    def confirm(self, now: float) -> None:
        """The oldest event that `get` returned and nobody confirmed was sent now."""
        if on_sent := self._unconfirmed.popleft():
            on_sent(now)
        if not self._waiting and not self._unconfirmed:
            self._emptied.set()

    async def emptied(self) -> None:
        """Waits until all events have been sent."""
        await self._emptied.wait()
