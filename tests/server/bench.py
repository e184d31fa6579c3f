"""A session without a socket, on an engine and codec that all tests of a module share."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from mosslive import Engine
from mosslive.server.backend import Backend
from mosslive.server.event_text import event_text
from mosslive.server.metrics import Metrics
from mosslive.server.realtime.handlers import HANDLERS
from mosslive.server.realtime.session import Client, RealtimeSession
from mosslive.server.realtime.talk_events import TalkEventForwarder
from mosslive.server.voice_store import VoiceStore
from mosslive.talk import CodecService
from tests.server.rig import MANUAL, WAIT_S, Event, Parts, pcm, settings, spoken, until
from tests.talk.rig import LoudVad


@contextmanager
def backend(parts: Parts, **changes: Any) -> Iterator[Backend]:
    given = settings(**changes)
    made = Backend(
        Engine.load(parts.lm),
        CodecService(parts.codec),
        VoiceStore(parts.voice, [], 4),
        given,
        LoudVad,
    )
    yield made
    asyncio.run(made.close())


class Bench:
    def __init__(self, served: Backend, client: Client, lead_s: float | None) -> None:
        self.events: list[Event] = []

        def send(event: Event) -> None:
            self.events.append(json.loads(event_text(event)))  # as a client gets it

        self.session = RealtimeSession(
            served, client, send, HANDLERS, Metrics(), lead_s=lead_s, expires_at=1
        )
        self._read = 0

    async def send(self, kind: str, **fields: Any) -> None:
        await self.session.handle({"type": kind} | fields)

    async def until(self, kind: str) -> Event:
        """The next event of that type after the events already read."""

        def found() -> bool:
            while self._read < len(self.events):
                self._read += 1
                if self.events[self._read - 1]["type"] == kind:
                    return True
            return False

        await until(found)
        return self.events[self._read - 1]

    async def quiet(self) -> None:
        """Waits until no response is active and nothing is being played."""
        session = self.session
        await until(lambda: not session.busy)
        if not session.talk.listening:
            await session.talk.settled()
        for _ in range(5):
            await asyncio.sleep(0)
        await until(lambda: session.responses.active is None)

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["type"] == kind]


@asynccontextmanager
async def bench(
    served: Backend, client: Client | None = None, lead_s: float | None = None
) -> AsyncIterator[Bench]:
    """A session without a socket; on exit asserts that nothing of it is left. `lead_s`: set if the
    server plays the sound."""
    made = Bench(served, client or Client("client"), lead_s)
    following = asyncio.get_running_loop().create_task(TalkEventForwarder(made.session).run())
    made.session.open()
    try:
        yield made
    finally:
        await made.session.close()
        async with asyncio.timeout(WAIT_S):
            await following
    engine = served.engine
    await until(lambda: engine.stats().conversations == 0)
    await until(lambda: engine.stats().free_pages == engine.stats().pages)
    codec = served.codec
    await until(lambda: codec is None or codec.open_replies == 0)


def message(text: str, role: str = "user") -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


async def ask(on: Bench, seconds: float = 0.4, **response: Any) -> dict[str, Any]:
    """One spoken turn without turn detection → the response."""
    await on.send("session.update", session=MANUAL)
    await on.send("input_audio_buffer.append", audio=pcm(spoken(seconds)))
    await on.send("input_audio_buffer.commit")
    await on.send("response.create", response=response)
    done: dict[str, Any] = (await on.until("response.done"))["response"]
    return done


def said(on: Bench) -> list[tuple[str, str]]:
    return [(one.role, one.kind) for one in on.session.talk.turns]
