"""Events that wait for their reader: in order, nothing left out, and never more than can be kept.

Sound is the mass of them. While `most_samples` of it wait unread, no more is handed out: the reply
waits, and rendering behind it; if the reader then takes nothing for a long while, the reply fails
and says why. All other events are few, and follow from what was asked: when too many wait, nothing
more may be asked. Knows nothing of transports. Invariant: memory is bounded whatever the reader
does.
"""

import asyncio
from collections import deque

from mosslive.errors import MossliveError
from mosslive.talk.clock import Clock
from mosslive.talk.events import AudioChunk, Event
from mosslive.talk.speech_codec import Samples

MOST_EVENTS = 10_000  # sound not counted; the reply in progress may add its own text to them
PATIENCE_S = 30.0  # of a reply with a reader who takes nothing


class NotRead(MossliveError):
    """Nobody reads the events of this conversation."""


class EventQueue:
    def __init__(self, clock: Clock, most_samples: int) -> None:
        self._clock, self._most_samples = clock, most_samples
        self._waiting: deque[Event] = deque()
        self._samples = self._chunks = 0  # of the sound that waits
        self._taken = 0  # events in all
        self._closed = False
        self._news = asyncio.Event()  # for the reader
        self._read = asyncio.Event()  # for who waits for the reader

    def put(self, event: Event) -> None:
        self._waiting.append(event)
        if isinstance(event, AudioChunk):
            self._samples += len(event.pcm)
            self._chunks += 1
        self._news.set()

    def close(self) -> None:
        """What waits can still be read; then it ends."""
        self._closed = True
        self._news.set()

    async def get(self) -> Event | None:
        """None: nothing comes any more."""
        while not self._waiting:
            if self._closed:
                return None
            self._news.clear()
            await self._news.wait()
        return self.take()

    def take(self) -> Event | None:
        """The next event, without waiting. None: no event waits."""
        if not self._waiting:
            return None
        event = self._waiting.popleft()
        if isinstance(event, AudioChunk):
            self._samples -= len(event.pcm)
            self._chunks -= 1
        self._taken += 1
        self._read.set()
        return event

    def check(self) -> None:
        """Before anything is asked that will bring events."""
        if (waiting := len(self._waiting) - self._chunks) > MOST_EVENTS:
            raise NotRead(
                f"{waiting} events wait unread; allowed: {MOST_EVENTS}. Read Talk.events()"
            )

    @property
    def full(self) -> bool:
        """Of sound."""
        return self._samples >= self._most_samples

    async def room(self) -> None:
        """Until more sound may be handed out."""
        while self.full:
            taken = self._taken
            self._read.clear()
            end = self._clock.sleep_until(self._clock.now() + PATIENCE_S)
            waits = [asyncio.ensure_future(end), asyncio.ensure_future(self._read.wait())]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            if self._taken == taken:
                raise NotRead(
                    f"the reply was broken off: its sound waits unread, and for {PATIENCE_S:g} s "
                    f"nobody has read Talk.events()"
                )


class ReplyOutlet:
    """Where the sound of one reply goes."""

    def __init__(self, events_out: EventQueue, turn: int) -> None:
        self._events, self._turn = events_out, turn

    @property
    def full(self) -> bool:
        return self._events.full

    def hand_out(self, first_sample: int, pcm: Samples) -> None:
        self._events.put(AudioChunk(self._turn, first_sample, pcm))

    async def room(self) -> None:
        await self._events.room()
