"""What one session saw: the events it sent and got, how it ended, and what went wrong.

Knows no transport. Used on the event loop of the fuzzer.
"""

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.fuzz.script import Session, resolve

Event = dict[str, Any]
# On a machine that is busy with other things, FUZZ_PATIENCE stretches the time for answers.
PATIENCE = float(os.environ.get("FUZZ_PATIENCE", "1"))
ANSWER_S = 5.0 * PATIENCE  # a session answers, or is closed with a reason, within this time
# A reply of the tested servers is at most this long. Over WebRTC the next one waits for its end.
REPLY_S = 1.6
_MOST_WAITS = 10


@dataclass
class Record:
    session: Session
    events: list[Event] = field(default_factory=list)  # that the server sent
    sent: list[Event] = field(default_factory=list)  # complete events with an `event_id`
    answered: bool = False  # the last question: all events before it were handled
    close: tuple[int, str] | None = None  # by the server
    refused: str = ""  # the code, if the session was not let in
    failures: list[str] = field(default_factory=list)
    responses: int = 0  # to HTTP requests

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self._numbers = count()
        self.ids: dict[str, list[str]] = {"item": [], "response": []}
        self.open_responses: set[str] = set()

    def fail(self, what: str) -> None:
        self.failures.append(what)

    def got(self, text: str | bytes) -> None:
        event: Event = json.loads(text)
        self.events.append(event)
        kind = event["type"]
        if kind in ("conversation.item.added", "conversation.item.created"):
            self.ids["item"].append(event["item"]["id"])
        elif kind == "response.created":
            self.ids["response"].append(event["response"]["id"])
            self.open_responses.add(event["response"]["id"])
        elif kind == "response.done":
            self.open_responses.discard(event["response"]["id"])
        self.wake()

    def wake(self) -> None:
        self._changed.set()

    def fill(self, event: Event) -> Event:
        """The event as it is sent: with its values, and with an id unless it has one."""
        filled: Event = resolve(event, self._id)
        if isinstance(filled.get("type"), str) and "event_id" not in filled:
            filled["event_id"] = f"fuzz_{next(self._numbers)}"
            self.sent.append(filled)
        return filled

    def question(self) -> Event:
        """The last event of a session, which every session answers: with an error that has its
        id."""
        return {
            "type": "conversation.item.retrieve",
            "event_id": "fuzz_last",
            "item_id": "nowhere",
        }

    def saw_answer(self) -> bool:
        return any(map(_is_answer, self.events[-2000:]))

    async def until(self, done: Callable[[], object], most_s: float) -> bool:
        """Waits for a condition on the record. False: it took too long."""
        try:
            async with asyncio.timeout(most_s):
                while not done():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return bool(done())
        return True

    async def next_of(self, kind: str) -> None:
        """Waits for the next event of this type, but not long."""
        seen = len(self.events)

        def came() -> bool:
            late = any(event["type"] == kind for event in self.events[seen:])
            return late or self.close is not None

        await self.until(came, 0.3)

    async def finish(self) -> None:
        """After the last question: the answer, and the end of responses that are open by then."""
        if not await self.progress(lambda: self.saw_answer() or self.close):
            last = [event["type"] for event in self.events[-4:]]
            self.fail(f"silent: no answer within {ANSWER_S + REPLY_S:g} s; last events: {last}")
            return
        self.answered = self.close is None
        left = set(self.open_responses)
        if not await self.progress(lambda: not left & self.open_responses or self.close):
            self.fail("silent: a response has no response.done")

    async def progress(self, done: Callable[[], object]) -> bool:
        """Waits for a condition as long as events come: a session may have hundreds of events to
        handle first. False: it came to a halt, or went on for ever."""
        for _ in range(_MOST_WAITS):
            seen = len(self.events)
            if await self.until(done, ANSWER_S + REPLY_S):
                return True
            if len(self.events) == seen:
                return False
        return False

    def _id(self, kind: str, number: int) -> str:
        known = self.ids[kind]
        return known[-1 - number % len(known)] if known else f"{kind}_unknown"


def _is_answer(event: Event) -> bool:
    return bool(event["type"] == "error" and event["error"].get("event_id") == "fuzz_last")
