"""The events of a conversation, and the queue in which they wait for their reader.

`turn` counts the user's turns from 1; a reply carries the number of the turn that it answers. A
reply without a user's turn (`Talk.respond`) has a number of its own.

The queue keeps the order, drops nothing and bounds memory whatever the reader does. Sound takes
most of the memory: while `most_samples` of it wait, the reply and its rendering wait too. If the
reader then takes nothing for `PATIENCE_S`, the reply fails. All other events are few and follow
from calls; when too many wait, further calls are refused. Runs on the event loop. Knows nothing of
transports.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mosslive.errors import MossliveError
from mosslive.rows import ReplyKind
from mosslive.talk.clock import Clock
from mosslive.talk.timing import TurnTiming

Stage = Literal["listening", "reply", "memory"]

MOST_EVENTS = 10_000  # without sound; the reply in progress may still add its text
PATIENCE_S = 30.0  # how long a reply waits for a reader that takes nothing


@dataclass(frozen=True)
class SpeechStarted:
    """The user speaks. A reply being given is cut off, and `ReplyInterrupted` follows."""

    turn: int
    position_s: float  # in the user's sound, pre-roll included


@dataclass(frozen=True)
class SpeechStopped:
    turn: int
    position_s: float  # of the last speech; the end of the turn was detected later


@dataclass(frozen=True)
class TurnDetected:
    """The user's turn is over. With `auto_reply` the reply is in progress."""

    turn: int


@dataclass(frozen=True)
class ReplyStarted:
    turn: int
    kind: ReplyKind


@dataclass(frozen=True)
class TextDelta:
    turn: int
    text: str


@dataclass(frozen=True, eq=False)
class AudioChunk:
    """Samples to play now, [n] float32 at the codec's rate; may exceed ±1 by 7 %."""

    turn: int
    first_sample: int  # of the reply
    pcm: NDArray[np.float32] = field(repr=False)


@dataclass(frozen=True)
class ReplyDone:
    """The whole reply was sent; its sound may still be playing, and may still be interrupted."""

    turn: int
    text: str
    codes: int
    stop: str  # why the model ended: stop, length, context, pages


@dataclass(frozen=True)
class ReplyInterrupted:
    """The history keeps only the part that was heard."""

    turn: int
    heard_codes: int
    heard_s: float


@dataclass(frozen=True)
class ContextTrimmed:
    """The oldest turns were removed from the context to make room."""

    turns: int
    rows: int


@dataclass(frozen=True)
class TimingReady:
    timing: TurnTiming


@dataclass(frozen=True)
class TalkFault:
    """Something failed. The conversation continues from what was heard before, unless `fatal`."""

    turn: int
    stage: Stage
    message: str
    fatal: bool = False
    error: Exception | None = field(default=None, repr=False, compare=False)


Event = (
    SpeechStarted
    | SpeechStopped
    | TurnDetected
    | ReplyStarted
    | TextDelta
    | AudioChunk
    | ReplyDone
    | ReplyInterrupted
    | ContextTrimmed
    | TimingReady
    | TalkFault
)


class NotRead(MossliveError):
    """The events of this conversation are not read."""


class EventQueue:
    def __init__(self, clock: Clock, most_samples: int) -> None:
        self._clock, self._most_samples = clock, most_samples
        self._waiting: deque[Event] = deque()
        self._samples = self._chunks = 0  # of the waiting sound
        self._taken = 0  # events in all
        self._closed = False
        self._new_event = asyncio.Event()  # wakes the reader
        self._event_taken = asyncio.Event()  # wakes a reply that waits for the reader

    # The conversation writes.

    def put(self, event: Event) -> None:
        self._waiting.append(event)
        if isinstance(event, AudioChunk):
            self._samples += len(event.pcm)
            self._chunks += 1
        self._new_event.set()

    def fault(self, turn: int, stage: Stage, error: Exception, fatal: bool = False) -> None:
        """Puts a `TalkFault`. Errors that are not ours are reported with their type."""
        known = isinstance(error, MossliveError)
        message = str(error) if known else f"{type(error).__name__}: {error}"
        # An event may wait for long. The frames of a traceback would keep the reply's memory.
        error.__context__ = None
        self.put(TalkFault(turn, stage, message, fatal, error.with_traceback(None)))

    @contextmanager
    def fatal_faults(self, turn: int) -> Iterator[None]:
        """Reports an error inside as fatal: if the dialogue itself cannot be changed, the
        conversation cannot continue."""
        try:
            yield
        except Exception as error:
            self.fault(turn, "memory", error, fatal=True)

    def close(self) -> None:
        """Ends the queue after the events that wait."""
        self._closed = True
        self._new_event.set()

    def check(self) -> None:
        """Call before anything that causes events. Raises `NotRead` if too many wait."""
        if (waiting := len(self._waiting) - self._chunks) > MOST_EVENTS:
            raise NotRead(
                f"{waiting} events wait unread; allowed: {MOST_EVENTS}. Read Talk.events()"
            )

    @property
    def full_of_sound(self) -> bool:
        return self._samples >= self._most_samples

    async def room_for_sound(self) -> None:
        """Waits until more sound may be put. Raises `NotRead` if the reader takes nothing for
        `PATIENCE_S`."""
        while self.full_of_sound:
            taken = self._taken
            self._event_taken.clear()
            end = self._clock.sleep_until(self._clock.now() + PATIENCE_S)
            waits = [asyncio.ensure_future(end), asyncio.ensure_future(self._event_taken.wait())]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            if self._taken == taken:
                raise NotRead(
                    f"the reply was stopped: its sound waits unread, and Talk.events() was not "
                    f"read for {PATIENCE_S:g} s"
                )

    # The owner reads.

    async def get(self) -> Event | None:
        """Waits for the next event. None: the queue is closed and empty."""
        while not self._waiting:
            if self._closed:
                return None
            self._new_event.clear()
            await self._new_event.wait()
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
        self._event_taken.set()
        return event
